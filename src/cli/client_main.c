/*
 * hotcell-client: the command line where it must talk to a server or read a database. `hotcell` becomes it by exec; the
 * verbs are the same.
 */
#include "cli/client.h"
#include "cli/full.h"

int main(int argc, char **argv)
{
    return cli_main(argc, argv, &full_functions, &client_functions);
}
