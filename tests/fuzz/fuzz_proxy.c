/*
 * Feeds bytes to the proxy's reading of an answer from inside a cell, three times: whole, byte by byte, and in pieces
 * whose lengths the input decides. What the client would be told must be the same, and must hold nothing that is not
 * the guest's to say: no framing, no second line in a value, no header for a whole origin.
 */
#include "gateway/http_parse.h"
#include "gateway/proxy_head.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ALL_MAX = 1 << 22 };

static void check(int holds)
{
    if (!holds)
        abort();
}

static int pass(void *data, const char *name, const char *value)
{
    static const char *const never[] = {"connection",        "content-length",
                                        "transfer-encoding", "upgrade",
                                        "keep-alive",        "strict-transport-security",
                                        "clear-site-data",   "access-control-allow-origin",
                                        "hotcell-recovered"};
    check(http_is_token(name, strlen(name)));
    for (size_t i = 0; i < sizeof never / sizeof never[0]; i++)
        check(strcasecmp(name, never[i]) != 0);
    for (const char *c = value; *c != '\0'; c++)
        check(((unsigned char)*c >= 0x20 || *c == '\t') && *c != 0x7F);
    hc_buf_printf(data, "%s: %s\r\n", name, value);
    return 0;
}

/* Everything that is passed on, as text. */
static void read_all(struct hc_buf *all, const char *data, size_t size, const uint8_t *cuts, size_t cut_count)
{
    static const struct proxy_answer answer = {.prefix = "/v1/s/ports/80", .host = "localhost:80"};
    struct http_reader reader;
    http_reader_start(&reader);
    reader.upgrades = size > 0 && data[0] % 2 == 1;
    reader.bodiless = size > 1 && data[1] % 2 == 1;
    int event = HTTP_READER_EVENT_MORE;
    for (size_t at = 2, i = 0; at < size && event >= 0 && event != HTTP_READER_EVENT_END; i++) {
        size_t length = cuts != NULL ? cuts[i % cut_count] : size;
        length = length > 0 ? length : 1;
        length = length < size - at ? length : size - at;
        for (size_t taken = 0; taken < length;) {
            const char *piece;
            size_t used, piece_length;
            event = http_reader_take(&reader, data + at + taken, length - taken, &used, &piece, &piece_length);
            check(used <= length - taken && reader.line.length <= HTTP_HEAD_MAX);
            taken += used;
            if (event == HTTP_READER_EVENT_HEAD) {
                hc_buf_printf(all, "%d\r\n", reader.status);
                if (proxy_pass_headers(&reader, &answer, pass, all) < 0)
                    event = -E2BIG;
            } else if (event == HTTP_READER_EVENT_PIECE) {
                check(piece_length > 0 && piece >= data + at && piece + piece_length <= data + at + length);
                hc_buf_add(all, piece, piece_length);
            }
            if (event < 0 || event == HTTP_READER_EVENT_END || reader.state == HTTP_READER_DONE)
                break;
        }
        if (reader.state == HTTP_READER_DONE)
            break;
        at += length;
    }
    hc_buf_printf(all, "%d %d", event < 0 ? event : 0, http_reader_end(&reader));
    http_reader_release(&reader);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t SINGLE[] = {1};
    struct hc_buf whole = HC_BUF_INIT(ALL_MAX), single = whole, cut = whole;
    read_all(&whole, (const char *)data, size, NULL, 0);
    read_all(&single, (const char *)data, size, SINGLE, 1);
    read_all(&cut, (const char *)data, size, size > 0 ? data : SINGLE, size > 0 ? size : 1);
    check(whole.length == single.length && whole.length == cut.length);
    check(memcmp(whole.data, single.data, whole.length) == 0);
    check(memcmp(whole.data, cut.data, whole.length) == 0);
    hc_buf_release(&whole);
    hc_buf_release(&single);
    hc_buf_release(&cut);
    return 0;
}
