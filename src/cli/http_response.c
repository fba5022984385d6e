/* See http_response.h. */
#include "cli/http_response.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

void http_response_start(struct http_response *response)
{
    *response = (struct http_response){0};
    http_reader_start(&response->reader);
}

void http_response_release(struct http_response *response)
{
    http_reader_release(&response->reader);
}

static void take_header(struct http_response *response, const char *name, const char *value)
{
    uint64_t number = 0;

    if (strcasecmp(name, "content-type") == 0) {
        size_t length = strcspn(value, "; \t");
        snprintf(response->content_type, sizeof response->content_type, "%.*s", (int)length, value);
        for (char *at = response->content_type; *at; at++)
            *at = (char)tolower((unsigned char)*at);
    } else if (strcasecmp(name, "mcp-session-id") == 0 && strlen(value) < sizeof response->session) {
        memcpy(response->session, value, strlen(value) + 1);
    } else if (strcasecmp(name, "retry-after") == 0 && http_read_number(value, 10, &number) == 0) {
        response->retry_after = number < 86400 ? (unsigned)number : 86400;
    } else if (strcasecmp(name, "hotcell-skipped") == 0 && http_read_number(value, 10, &number) == 0) {
        response->skipped = number;
    }
}

static void take_head(struct http_response *response)
{
    const char *name, *value;

    if (response->reader.status < 200) /* 100 and its like: another head follows */
        return;
    response->status = response->reader.status;
    for (size_t at = 0; http_reader_header(&response->reader, &at, &name, &value);)
        take_header(response, name, value);
}

int http_response_feed(struct http_response *response, const char *data, size_t length, struct hc_buf *body)
{
    while (length > 0) {
        const char *piece;
        size_t used, piece_length;
        int event = http_reader_take(&response->reader, data, length, &used, &piece, &piece_length);
        if (event < 0)
            return event;
        if (event == HTTP_READER_EVENT_HEAD)
            take_head(response);
        if (event == HTTP_READER_EVENT_PIECE && hc_buf_add(body, piece, piece_length) < 0)
            return hc_buf_status(body);
        data += used;
        length -= used;
    }
    return 0;
}

int http_response_end(struct http_response *response)
{
    return http_reader_end(&response->reader);
}

bool http_response_done(const struct http_response *response)
{
    return response->reader.state == HTTP_READER_DONE;
}
