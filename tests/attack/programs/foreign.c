/* System calls by the doors of other architectures: `int80` (i386 numbers), `x32` (numbers with bit 30). Both ask for
 * the pid. */
#include "probe.h"

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    long result = -1;
    fact("trying", "%s", argv[1]);
    if (strcmp(argv[1], "int80") == 0) {
        __asm__ volatile("int $0x80" : "=a"(result) : "a"(20L) : "memory", "r8", "r9", "r10", "r11");
        result = (int)result;
    } else {
        result = syscall(0x40000000 | 39);
        if (result < 0)
            result = -errno;
    }
    fact("answer", "%s", result == getpid() ? "pid" : errno_word((int)-result));
    return 0;
}
