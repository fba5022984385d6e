/* See warm_perl.h. Perl's functions are looked up by name; nothing is built against a version. */
#include "cell/warm_perl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>

#define FUNCTION "main::__hotcell__" /* deletes itself */
enum { VOID = 1, DISCARD = 4 };      /* G_VOID, G_DISCARD */

/* What Perl has one of for each of its threads; NULL where it is built without them, and its functions take none. */
static void *interpreter;
static int (*call_in)(void *interpreter, const char *name, int flags, char **words); /* perlapi(1): call_argv */
static int (*call)(const char *name, int flags, char **words);

bool warm_perl_look_up(void)
{
    const pthread_key_t *key = dlsym(RTLD_DEFAULT, "PL_thr_key");
    void *found = dlsym(RTLD_DEFAULT, "Perl_call_argv");
    interpreter = key ? pthread_getspecific(*key) : NULL;
    if (key)
        call_in = (int (*)(void *, const char *, int, char **))found;
    else
        call = (int (*)(const char *, int, char **))found;
    return found && (!key || interpreter);
}

void warm_perl_begin(bool usual)
{
    char word[] = "usual", *words[] = {usual ? word : NULL, NULL};
    if (call_in)
        call_in(interpreter, FUNCTION, VOID | DISCARD, words);
    else
        call(FUNCTION, VOID | DISCARD, words);
}
