/* argv[1] threads that spin; argv[2] seconds at most. */
#include "probe.h"
#include <pthread.h>

static void *spin(void *data)
{
    time_t end = time(NULL) + *(long *)data;
    for (volatile unsigned long i = 0;; i++)
        if (i % 100000000 == 0 && time(NULL) > end)
            return NULL;
}

int main(int argc, char **argv)
{
    long threads = argc > 1 ? atol(argv[1]) : 1, seconds = argc > 2 ? atol(argv[2]) : 60;
    fact("spinning", "yes");
    for (long i = 1; i < threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, spin, &seconds))
            break;
    }
    spin(&seconds);
    return 0;
}
