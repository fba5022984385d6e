/*
 * Take without end, or up to argv[2] units where given. argv[1]:
 *   memory    MiB of anonymous memory, touched          shared   MiB of shared memory, touched
 *   memfd     MiB in a memfd                            children MiB, each in a child of its own
 *   disk DIR  MiB in one file of DIR (argv[3])          inodes   files in the working directory
 *   forks     children that sleep                       threads  threads that sleep
 *   output    MiB to stdout                             errors   MiB to stderr
 *   zero, urandom   read that device forever            pipes    pipes filled to the brim
 * Prints `got=<units>` and `stop=<errno>` when it was refused.
 */
#include "probe.h"
#include <pthread.h>
#include <sys/mman.h>

enum { MIB = 1 << 20 };

static int finish(long got, int error)
{
    fact("got", "%ld", got);
    fact("stop", "%s", error ? errno_word(error) : "none");
    return 0;
}

static bool more(long done, long wanted)
{
    return wanted == 0 || done < wanted;
}

static int eat_memory(long wanted, int flags)
{
    long done = 0;
    for (; more(done, wanted); done++) {
        char *block = mmap(NULL, MIB, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
        if (block == MAP_FAILED)
            return finish(done, errno);
        memset(block, (int)done | 1, MIB);
    }
    return finish(done, 0);
}

static int eat_file(int fd, long wanted)
{
    static char block[MIB];
    memset(block, 0x5a, sizeof block);
    long done = 0;
    signal(SIGXFSZ, SIG_IGN);
    for (; more(done, wanted); done++) {
        ssize_t put_bytes = write(fd, block, sizeof block);
        if (put_bytes < 0)
            return finish(done, errno);
        if (put_bytes < (ssize_t)sizeof block)
            done--;
    }
    return finish(done, 0);
}

static int eat_inodes(long wanted)
{
    char name[64];
    long done = 0;
    int error = 0;
    for (; more(done, wanted); done++) {
        snprintf(name, sizeof name, "inode.%ld", done);
        int fd = open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0) {
            error = errno;
            break;
        }
        close(fd);
    }
    for (long i = 0; i < done; i++) {
        snprintf(name, sizeof name, "inode.%ld", i);
        unlink(name);
    }
    return finish(done, error);
}

static int eat_forks(long wanted)
{
    long done = 0;
    int error = 0;
    for (; more(done, wanted); done++) {
        pid_t child = fork();
        if (child < 0) {
            error = errno;
            break;
        }
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            nap(20000);
            _exit(0);
        }
    }
    nap(100); /* so that each child has asked for the signal before we end */
    return finish(done, error);
}

static void *lie_down(void *unused)
{
    nap(20000);
    return unused;
}

static int eat_threads(long wanted)
{
    long done = 0;
    int error = 0;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 65536);
    for (; more(done, wanted) && !error; done++) {
        pthread_t thread;
        error = pthread_create(&thread, &attributes, lie_down, NULL);
    }
    finish(done, error);
    _exit(0);
}

static int eat_pipes(long wanted)
{
    static char block[65536];
    long done = 0;
    for (; more(done, wanted); done++) {
        int ends[2];
        if (pipe2(ends, O_NONBLOCK | O_CLOEXEC) < 0)
            return finish(done, errno);
        fcntl(ends[1], F_SETPIPE_SZ, MIB);
        while (write(ends[1], block, sizeof block) > 0)
            ;
    }
    return finish(done, 0);
}

static int eat_output(int fd, long wanted)
{
    static char block[MIB];
    memset(block, 'x', sizeof block);
    for (long done = 0; more(done, wanted); done++)
        for (size_t at = 0; at < sizeof block;) {
            ssize_t put_bytes = write(fd, block + at, sizeof block - at);
            if (put_bytes < 0)
                return 1;
            at += (size_t)put_bytes;
        }
    return 0;
}

static int eat_children(long wanted)
{
    for (long i = 0; more(i, wanted); i++) {
        pid_t child = fork();
        if (child < 0)
            return finish(i, errno);
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            char *block = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (block != MAP_FAILED)
                memset(block, 1, MIB);
            nap(20000);
            _exit(0);
        }
    }
    nap(300);
    return finish(wanted, 0);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    long wanted = argc > 2 ? atol(argv[2]) : 0;
    if (strcmp(what, "memory") == 0)
        return eat_memory(wanted, MAP_PRIVATE);
    if (strcmp(what, "shared") == 0)
        return eat_memory(wanted, MAP_SHARED);
    if (strcmp(what, "memfd") == 0)
        return eat_file(memfd_create("eat", MFD_CLOEXEC), wanted);
    if (strcmp(what, "children") == 0)
        return eat_children(wanted);
    if (strcmp(what, "disk") == 0 && argc > 3) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s/eat.file", argv[3]);
        int status = eat_file(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600), wanted);
        if (argc == 4)
            unlink(path);
        return status;
    }
    if (strcmp(what, "inodes") == 0)
        return eat_inodes(wanted);
    if (strcmp(what, "forks") == 0)
        return eat_forks(wanted);
    if (strcmp(what, "threads") == 0)
        return eat_threads(wanted);
    if (strcmp(what, "pipes") == 0)
        return eat_pipes(wanted);
    if (strcmp(what, "output") == 0)
        return eat_output(STDOUT_FILENO, wanted);
    if (strcmp(what, "errors") == 0)
        return eat_output(STDERR_FILENO, wanted);
    if (strcmp(what, "zero") == 0 || strcmp(what, "urandom") == 0) {
        static char block[MIB];
        int fd = open(what[0] == 'z' ? "/dev/zero" : "/dev/urandom", O_RDONLY | O_CLOEXEC);
        fact("opened", "%s", fd < 0 ? errno_word(errno) : "yes");
        for (long done = 0; more(done, wanted); done++)
            if (read(fd, block, sizeof block) < 0)
                return finish(done, errno);
        return finish(wanted, 0);
    }
    return 2;
}
