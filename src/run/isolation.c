/* See isolation.h. */
#include "run/isolation.h"

#include "warden/proto.h"
#include <stdio.h>
#include <string.h>

const char *const isolation_layer_words[ISOLATION_LAYERS] = {"user",   "mount",  "pid", "net",  "ipc",     "uts",
                                                             "cgroup", "memory", "cpu", "pids", "seccomp", "landlock"};
_Static_assert(1u << ISOLATION_LAYERS == ISOLATION_ALL + 1u, "a word for each layer");

const char *isolation_words(uint32_t bits, char *text, size_t size)
{
    size_t length = 0;
    text[0] = '\0';
    for (int layer = 0; layer < ISOLATION_LAYERS; layer++) {
        if (!(bits & 1u << layer) || length + 1 >= size)
            continue;
        int count = snprintf(text + length, size - length, "%s%s", length ? ", " : "", isolation_layer_words[layer]);
        length += count > 0 ? (size_t)count : 0;
    }
    return text;
}
