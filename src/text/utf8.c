/* Making valid UTF-8 of any bytes. The table is Unicode's table 3-7: which bytes may follow which first byte. */
#include "text/utf8.h"

struct row {
    unsigned char first_low, first_high; /* of the first byte */
    unsigned char low, high;             /* of the second; those after it are 0x80 to 0xbf */
    unsigned char count;                 /* of all */
};

static const struct row ROWS[] = {
    {0x00, 0x7f, 0, 0, 1},       {0xc2, 0xdf, 0x80, 0xbf, 2},
    {0xe0, 0xe0, 0xa0, 0xbf, 3},                              /* what is shorter is not written longer */
    {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, /* no surrogates */
    {0xee, 0xef, 0x80, 0xbf, 3}, {0xf0, 0xf0, 0x90, 0xbf, 4},
    {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4}, /* nothing past U+10FFFF */
};

/* How many bytes at `at` are one character (*valid), or one part that is none. */
static size_t measure(const unsigned char *at, size_t left, bool *valid)
{
    const struct row *row = NULL;
    size_t count = 1;

    for (size_t i = 0; i < sizeof(ROWS) / sizeof(ROWS[0]); i++) {
        if (at[0] >= ROWS[i].first_low && at[0] <= ROWS[i].first_high)
            row = &ROWS[i];
    }
    *valid = false;
    if (!row)
        return 1;
    for (; count < row->count && count < left; count++) {
        unsigned char low = count == 1 ? row->low : 0x80, high = count == 1 ? row->high : 0xbf;
        if (at[count] < low || at[count] > high)
            return count;
    }
    *valid = count == row->count;
    return count;
}

bool hc_utf8_valid(const char *bytes, size_t length)
{
    bool valid = true;

    for (size_t at = 0; valid && at < length;)
        at += measure((const unsigned char *)bytes + at, length - at, &valid);
    return valid;
}

int hc_utf8_replace(struct hc_buf *buf, const char *bytes, size_t length)
{
    const unsigned char *data = (const unsigned char *)bytes;
    size_t good = 0; /* where what was not added yet begins */

    for (size_t at = 0; at < length;) {
        bool valid;
        size_t count = data[at] < 0x80 ? (valid = true, 1) : measure(data + at, length - at, &valid);
        if (!valid) {
            hc_buf_add(buf, bytes + good, at - good);
            hc_buf_add(buf, "\xef\xbf\xbd", 3);
            good = at + count;
        }
        at += count;
    }
    if (good < length)
        hc_buf_add(buf, bytes + good, length - good);
    return hc_buf_status(buf);
}
