/* See kinds.h. A new kind is one line here. */
#include "sandbox/kinds.h"

#include "sandbox/speaker.h"
#include "sandbox/terminal.h"
#include <string.h>

const struct fixture_kind *fixture_kind_find(const char *word)
{
    static const struct fixture_kind *const kinds[] = {&work_kind, &session_kind, &context_kind, &terminal_kind, NULL};
    for (size_t i = 0; word && kinds[i]; i++)
        if (strcmp(kinds[i]->word, word) == 0)
            return kinds[i];
    return NULL;
}
