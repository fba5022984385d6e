/* See sandbox.h: what lives in a sandbox, in one list. */
#include "run/result.h"
#include "sandbox/kinds.h"
#include "sandbox/sandbox.h"
#include <string.h>
#include <time.h>

int64_t sandbox_wall_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

int fixture_add(struct fixture *fixture, struct sandbox *sandbox, const struct fixture_kind *kind, const char *word)
{
    if (fixture->created_at == 0)
        fixture->created_at = sandbox_wall_clock();
    if (word) {
        int result = result_id_of(word, fixture->id, sizeof fixture->id, fixture->created_at);
        if (result < 0)
            return result;
    }
    fixture->kind = kind;
    fixture->sandbox = sandbox;
    fixture->next = sandbox->fixtures;
    sandbox->fixtures = fixture;
    return 0;
}

void fixture_remove(struct fixture *fixture)
{
    for (struct fixture **at = &fixture->sandbox->fixtures; *at; at = &(*at)->next)
        if (*at == fixture) {
            *at = fixture->next;
            break;
        }
    fixture->kind->free(fixture);
}

struct fixture *fixture_find(const struct sandbox *sandbox, const struct fixture_kind *kind, const char *id)
{
    struct fixture *fixture = sandbox->fixtures;
    while (fixture && (fixture->kind != kind || strcmp(fixture->id, id) != 0))
        fixture = fixture->next;
    return fixture;
}

size_t fixture_count(const struct sandbox *sandbox, const char *word)
{
    size_t count = 0;
    for (const struct fixture *fixture = sandbox->fixtures; fixture; fixture = fixture->next)
        count += fixture->running && strcmp(fixture->kind->word, word) == 0;
    return count;
}
