/*
 * hotcell, the command line. It is written on include/hotcell.h, the public library, and on src/base: what it can do,
 * any program can. verbs.c finds the verb. This is the program that people start: it runs programs on this machine, and
 * for anything else becomes one of the other two (full_main.c, client_main.c).
 */
#include "cli/verbs.h"

int main(int argc, char **argv)
{
    return cli_main(argc, argv, NULL, NULL);
}
