/* In the place of hotcell-gateway: the real one, beside this in the folder of languages, with an allocation that fails.
 * Which one is in a file there. A gateway that is started again after that is spared, or there would be no recovery to
 * see. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER "/languages/0/"

int main(int argc, char **argv)
{
    (void)argc;
    char number[32] = "";
    FILE *file = fopen(FOLDER "fail_at", "r");
    if (file && fgets(number, sizeof number, file))
        setenv("FAIL_AT", number, 1);
    if (file)
        fclose(file);
    struct stat status;
    if (number[0] && stat("/state/history.db-spared", &status) < 0) {
        file = fopen("/state/history.db-spared", "w");
        if (file)
            fclose(file);
        setenv("LD_PRELOAD", FOLDER "libfailmalloc.so", 1);
    }
    execv(FOLDER "hotcell-gateway", argv);
    return 126;
}
