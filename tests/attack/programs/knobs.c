/* Open for writing, and close again, every knob named on the command line. Nothing is written. */
#include "probe.h"

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        int fd = open_knob(argv[i]);
        probe(argv[i], fd);
        if (fd >= 0)
            close(fd);
    }
    return 0;
}
