"""What programs that were written for the other sandbox do: requests.post with a JSON body, and a look at three fields."""

import requests

FIELDS = {"process_status", "stdout", "stderr"}


class Client:
    def __init__(self, url):
        self.url = url

    def post(self, **options):
        """Any request to /execute; the answer is checked for its shape, whatever it says."""
        response = requests.post(f"{self.url}/execute", timeout=120, **options)
        assert response.headers["content-type"] == "application/json", response.text
        answer = response.json()
        assert set(answer) == FIELDS and all(isinstance(value, str) for value in answer.values()), answer
        assert answer["process_status"] in ("completed", "error", "timeout")
        return response

    def execute(self, code, timeout=10, language="python", **more):
        """The documented call. Returns the answer as a dictionary; the status must be 200."""
        response = self.post(json={"generated_code": code, "timeout": timeout, "language": language, **more},
                             headers={"Content-Type": "application/json"})
        assert response.status_code == 200, response.text
        return response.json()

    def refused(self, status=400, **options):
        """The message of a request that must be refused."""
        response = self.post(**options)
        answer = response.json()
        assert response.status_code == status, response.text
        assert answer["process_status"] == "error" and answer["stdout"] == "", answer
        return answer["stderr"]
