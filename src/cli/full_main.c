/*
 * hotcell-full: the command line with JSON, for the verbs that show things and for the server. `hotcell` becomes it by
 * exec; where there is no small `hotcell` it is installed by that name.
 */
#include "cli/full.h"

#include <sys/prctl.h>

int main(int argc, char **argv)
{
    prctl(PR_SET_NAME, "hotcell"); /* whoever looks for a server looks for what was started */
    return cli_main(argc, argv, &full_functions, NULL);
}
