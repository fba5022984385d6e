"""Checks answers of a server against its own /openapi.json.

    contract = Contract(server.get("/openapi.json").json)
    contract.check("GET", "/v1/runs/{id}", answer)       # status, content type and body are described, and the body is valid
    contract.validate(value, "Result")                   # one schema

Knows the part of JSON Schema that the document uses, and refuses a keyword that it does not know: a rule that nobody checks is worse than none.
"""

import json
import re

WORDS = {"description", "default", "contentEncoding"}  # say nothing about validity
TYPES = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
}
DATE_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


class Invalid(AssertionError):
    pass


class Contract:
    def __init__(self, document):
        self.document = document

    # ---- schemas ----

    def resolve(self, node):
        while "$ref" in node:
            target = self.document
            for part in node["$ref"].removeprefix("#/").split("/"):
                target = target[part]
            node = target
        return node

    def validate(self, value, schema, at="$"):
        """Raises Invalid with the place and the rule. `schema` is a schema, or the name of one."""
        if isinstance(schema, str):
            schema = {"$ref": f"#/components/schemas/{schema}"}
        for word, rule in self.resolve(schema).items():
            if word in WORDS:
                continue
            check = getattr(self, f"rule_{word}", None)
            if check is None:
                raise Invalid(f"{at}: the schema uses {word}, which this validator does not know")
            check(value, rule, at, self.resolve(schema))

    def fits(self, value, schema):
        try:
            self.validate(value, schema)
        except Invalid:
            return False
        return True

    @staticmethod
    def require(truth, at, what):
        if not truth:
            raise Invalid(f"{at}: {what}")

    def rule_type(self, value, rule, at, _):
        names = rule if isinstance(rule, list) else [rule]
        self.require(any(TYPES[name](value) for name in names), at, f"{value!r:.200} is not {' or '.join(names)}")

    def rule_enum(self, value, rule, at, _):
        self.require(value in rule, at, f"{value!r:.200} is none of {rule}")

    def rule_const(self, value, rule, at, _):
        self.require(value == rule, at, f"{value!r:.200} is not {rule!r}")

    def rule_pattern(self, value, rule, at, _):
        self.require(not isinstance(value, str) or re.search(rule, value), at, f"{value!r:.200} does not match {rule}")

    def rule_format(self, value, rule, at, _):
        self.require(rule == "date-time", at, f"the format {rule} is not known here")
        self.require(not isinstance(value, str) or DATE_TIME.fullmatch(value), at, f"{value!r} is not an RFC 3339 time in UTC")

    def rule_minimum(self, value, rule, at, _):
        self.require(not TYPES["number"](value) or value >= rule, at, f"{value} is less than {rule}")

    def rule_maximum(self, value, rule, at, _):
        self.require(not TYPES["number"](value) or value <= rule, at, f"{value} is more than {rule}")

    def rule_minLength(self, value, rule, at, _):
        self.require(not isinstance(value, str) or len(value) >= rule, at, f"is shorter than {rule}")

    def rule_maxLength(self, value, rule, at, _):
        self.require(not isinstance(value, str) or len(value) <= rule, at, f"is longer than {rule}")

    def rule_minItems(self, value, rule, at, _):
        self.require(not isinstance(value, list) or len(value) >= rule, at, f"has less than {rule} items")

    def rule_maxItems(self, value, rule, at, _):
        self.require(not isinstance(value, list) or len(value) <= rule, at, f"has more than {rule} items")

    def rule_items(self, value, rule, at, _):
        for index, item in enumerate(value if isinstance(value, list) else []):
            self.validate(item, rule, f"{at}[{index}]")

    def rule_required(self, value, rule, at, _):
        missing = [name for name in rule if name not in value] if isinstance(value, dict) else []
        self.require(not missing, at, f"lacks {', '.join(missing)}")

    def rule_properties(self, value, rule, at, _):
        for name, schema in rule.items():
            if isinstance(value, dict) and name in value:
                self.validate(value[name], schema, f"{at}.{name}")

    def rule_additionalProperties(self, value, rule, at, schema):
        for name in value if isinstance(value, dict) else []:
            if name not in schema.get("properties", {}):
                self.require(rule is not False, at, f"has the field {name}, which is not described")
                if isinstance(rule, dict):
                    self.validate(value[name], rule, f"{at}.{name}")

    def rule_oneOf(self, value, rule, at, _):
        count = sum(self.fits(value, schema) for schema in rule)
        self.require(count == 1, at, f"{value!r:.300} fits {count} of the schemas of oneOf")

    def rule_anyOf(self, value, rule, at, _):
        for schema in rule:
            if self.fits(value, schema):
                return
        self.validate(value, rule[0], at)  # says why

    # ---- answers ----

    def operation(self, method, pattern):
        try:
            return self.document["paths"][pattern][method.lower()]
        except KeyError:
            raise Invalid(f"{method} {pattern} is not described") from None

    def check(self, method, pattern, answer):
        """The answer's status is one of those that are described, its content type too, and its body is valid."""
        described = self.operation(method, pattern)["responses"]
        if str(answer.status) not in described:
            raise Invalid(f"{method} {pattern}: the status {answer.status} is not described: {answer!r}")
        response = self.resolve(described[str(answer.status)])
        for name in response.get("headers", {}):
            self.require(name.lower() in answer.headers, f"{method} {pattern}", f"there is no {name} header: {answer!r}")
        content = response.get("content", {})
        if not content:
            self.require(answer.body == b"", f"{method} {pattern}", f"a body is not described for {answer.status}: {answer!r}")
            return answer
        kind = answer.headers.get("content-type", "").split(";")[0].strip()
        self.require(kind in content, f"{method} {pattern}", f"the type {kind!r} is not described for {answer.status}")
        if kind.endswith("json"):
            self.validate(json.loads(answer.body), content[kind]["schema"], f"{method} {pattern} {answer.status}")
        return answer

    def check_event(self, event, schema="Event"):
        """A server-sent event: its name is known, and its data valid. `schema` has a property for each name."""
        known = self.document["components"]["schemas"][schema]["properties"]
        self.require(event.name in known, "event", f"{event.name} is not described")
        self.validate(event.data, known[event.name], f"event {event.name}")
