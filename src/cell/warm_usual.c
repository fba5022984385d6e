/* See warm_usual.h. What it opens is the guest's file, and it does so as the guest, in its cell. */
#include "cell/warm_usual.h"

#include "base/fd.h"
#include "cell/warm.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A preloaded library has nobody to carry its state. */
static const char *script;
static struct entry_words usual;

void warm_usual_begin(void)
{
    script = getenv(WARM_SCRIPT);
}

void warm_usual_learn(int block)
{
    struct hc_err err;
    if (script && (block < 0 || entry_read_block(block, &usual, &err) < 0))
        script = NULL;
}

static bool are_usual(const struct entry_words *words)
{
    if (words->argc != usual.argc || words->envc != usual.envc || strcmp(words->cwd, usual.cwd) != 0)
        return false;
    for (uint32_t i = 0; i < words->argc; i++)
        if (strcmp(words->argv[i], usual.argv[i]) != 0)
            return false;
    for (uint32_t i = 0; i < words->envc; i++)
        if (strcmp(words->envp[i], usual.envp[i]) != 0)
            return false;
    return true;
}

bool warm_usual_take(const struct entry_words *words, int fd)
{
    char first[2] = "";
    if (!script || !are_usual(words))
        return false;
    hc_cleanup_fd int file = (int)syscall(SYS_openat, AT_FDCWD, script, O_RDONLY | O_CLOEXEC, 0);
    if (file < 0 || pread(file, first, sizeof first, 0) < 0 || memcmp(first, "#!", sizeof first) == 0)
        return false;
    return file == fd ? HC_TAKE_FD(file) == fd : dup3(file, fd, O_CLOEXEC) == fd;
}
