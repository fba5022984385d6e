/* Read every file named on the command line and print it. */
#include "probe.h"

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        peek(argv[i], argv[i]);
    return 0;
}
