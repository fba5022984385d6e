/* What the tables of hotcell-client make of a result. */
#include "base/fd.h"
#include "cli/client.h"
#include "text/json.h"
#include <stdio.h>
#include <string.h>
#include <time.h>

const char *result_json_summary(const json_t *result, char *text, size_t size)
{
    hc_cleanup_free char *json = hc_json_write(result, false);

    text[0] = '\0';
    return json ? remote_summary(hc_peek_text(json, strlen(json)), text, size) : text;
}

const char *client_time(const char *rfc3339, char *text, size_t size)
{
    struct tm utc = {0}, local;

    if (!strptime(rfc3339, "%Y-%m-%dT%H:%M:%S", &utc)) {
        snprintf(text, size, "%s", rfc3339[0] ? rfc3339 : "-");
        return text;
    }
    time_t seconds = timegm(&utc);
    if (!localtime_r(&seconds, &local) || strftime(text, size, "%Y-%m-%d %H:%M:%S", &local) == 0)
        snprintf(text, size, "%s", rfc3339);
    return text;
}
