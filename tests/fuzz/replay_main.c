/*
 * Replays a fuzz target's corpus as a test: every file of the folders named on the command line goes through
 * LLVMFuzzerTestOneInput once, and is reported as one TAP line. What always holds: an input is in a block of exactly
 * its size, so that ASan sees a read past its end; an empty or missing folder fails.
 */
#include "base/fd.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INPUT_MAX = 16 * 1024 * 1024 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *folder, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    hc_cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    hc_cleanup_free char *text = NULL;
    size_t length = 0;
    if (fd < 0 || hc_read_all(fd, INPUT_MAX, &text, &length) != 0)
        return -1;
    hc_cleanup_free uint8_t *exact = malloc(length > 0 ? length : 1);
    if (exact == NULL)
        return -1;
    memcpy(exact, text, length);
    LLVMFuzzerTestOneInput(exact, length);
    return 0;
}

static int is_input(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

int main(int argc, char **argv)
{
    int number = 0, failed = 0;
    for (int i = 1; i < argc; i++) {
        struct dirent **entries = NULL;
        int count = scandir(argv[i], &entries, is_input, alphasort);
        if (count <= 0) {
            printf("not ok %d - %s holds no inputs\n", ++number, argv[i]);
            failed++;
        }
        for (int j = 0; j < count; j++) {
            int status = replay_file(argv[i], entries[j]->d_name);
            printf("%sok %d - %s\n", status == 0 ? "" : "not ", ++number, entries[j]->d_name);
            fflush(stdout); /* the last line printed names the input before the one that crashed */
            failed += status != 0;
            free(entries[j]);
        }
        free(entries);
    }
    printf("1..%d\n", number);
    return failed > 0 || number == 0;
}
