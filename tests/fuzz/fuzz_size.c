/* Fuzz target: the parsers of sizes, durations and numbers. A refusal leaves its output alone, and what is printed of
 * an accepted size can be read back. */
#include "base/size.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int status, uint64_t value)
{
    if (status != 0 && value != 77)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (text == NULL)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    struct hc_err err = {0};
    uint64_t bytes = 77, microseconds = 77, count = 77;
    double decimal = 77;
    int size_status = hc_parse_size(text, &bytes, &err);
    check(size_status, bytes);
    hc_err_clear(&err);
    check(hc_parse_duration(text, &microseconds, &err), microseconds);
    hc_err_clear(&err);
    check(hc_parse_count(text, 1, 1000, &count, &err), count);
    hc_err_clear(&err);
    if (hc_parse_decimal(text, -1000, 1000, &decimal, &err) == 0 && !(fabs(decimal) <= 1000))
        abort();
    char shown[32];
    uint64_t back = 0;
    if (size_status == 0 && bytes < UINT64_MAX / 2 &&
        hc_parse_size(hc_format_size(bytes, shown, sizeof shown), &back, NULL))
        abort();
    hc_format_duration(microseconds, shown, sizeof shown);
    free(text);
    return 0;
}
