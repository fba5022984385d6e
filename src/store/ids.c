/* See internal.h: a table of chains, by hash of the id. */
#include "store/internal.h"
#include <string.h>

static const char *id_of(const struct task *task)
{
    return ((const struct change *)task)->record.row.id;
}

static size_t slot_of(const char *id)
{
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (const char *c = id; *c != '\0'; c++)
        hash = (hash ^ (unsigned char)*c) * 16777619u;
    return hash % ID_SLOTS;
}

void ids_add(struct store *store, struct task *insert)
{
    struct task **slot = &store->ids[slot_of(id_of(insert))];
    insert->same_slot = *slot;
    *slot = insert;
}

void ids_remove(struct store *store, const struct task *task)
{
    if (task->apply != history_apply_insert)
        return;
    for (struct task **slot = &store->ids[slot_of(id_of(task))]; *slot != NULL; slot = &(*slot)->same_slot) {
        if (*slot == task) {
            *slot = task->same_slot;
            return;
        }
    }
}

bool ids_has(const struct store *store, const char *id)
{
    const struct task *task = store->ids[slot_of(id)];
    while (task != NULL && strcmp(id_of(task), id) != 0)
        task = task->same_slot;
    return task != NULL;
}
