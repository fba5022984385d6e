/* A sparse file of argv[1] bytes in the working directory, and the same by fallocate. */
#include "probe.h"

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    off_t size = strtoll(argv[1], NULL, 10);
    signal(SIGXFSZ, SIG_IGN);
    int fd = open("sparse.file", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    probe("open", fd);
    probe("ftruncate", ftruncate(fd, size));
    probe("pwrite", pwrite(fd, "x", 1, size - 1));
    probe("fallocate", ftruncate(fd, 0) < 0 ? -1 : fallocate(fd, 0, 0, size));
    probe("keep_size", fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, size));
    unlink("sparse.file");
    return 0;
}
