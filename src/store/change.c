/* Changes that the journal can hold: a task and a copy of what it needs, made from a caller's row or from an entry. */
#include "store/internal.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { PROMPT_BYTES = 64 * 1024 };

static int (*const APPLY[RECORD_KINDS])(struct store *, struct task *) = {
    [RECORD_INSERT] = history_apply_insert,
    [RECORD_STARTED] = history_apply_started,
    [RECORD_FINISH] = history_apply_finish,
    [RECORD_USAGE] = usage_apply,
};

static char *copy_bytes(char **free_space, const char *bytes, size_t length)
{
    if (bytes == NULL)
        return NULL;
    char *copy = *free_space;
    memcpy(copy, bytes, length);
    copy[length] = '\0';
    *free_space += length + 1;
    return copy;
}

int change_new(const struct record *record, store_done_fn done, void *data, struct change **out)
{
    const struct run_row *row = &record->row;
    size_t parts[] = {record->shape_length, row->request_length, row->result_length, row->log_length};
    size_t size = sizeof(struct change);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (parts[i] >= QUEUE_BYTES) /* before so much memory is asked for */
            return -EFBIG;
        size += parts[i] + 1;
    }
    struct change *copy = malloc(size);
    if (copy == NULL)
        return -ENOMEM;
    *copy = (struct change){
        .task = {.apply = APPLY[record->kind], .done = done, .data = data, .bytes = size},
        .record = *record,
    };
    char *free_space = copy->bytes;
    copy->record.row.shape = copy_bytes(&free_space, row->shape, record->shape_length);
    copy->record.row.request = copy_bytes(&free_space, row->request, row->request_length);
    copy->record.row.result = copy_bytes(&free_space, row->result, row->result_length);
    copy->record.row.log = copy_bytes(&free_space, row->log, row->log_length);
    size_t written = record_size(&copy->record);
    copy->task.record = written <= RECORD_BYTES ? written : 0;
    copy->task.prompt = record->kind == RECORD_FINISH && size < PROMPT_BYTES;
    copy->task.patient = record->kind == RECORD_USAGE; /* the end of its run is on its way: then it is one write */
    *out = copy;
    return 0;
}

int change_read(const struct journal_entry *entry, struct task **first, struct task **last)
{
    for (size_t at = 0; at < entry->length;) {
        struct record record;
        struct change *change = NULL;
        ssize_t length = record_read(entry->payload + at, entry->length - at, &record);
        if (length < 0)
            return (int)length;
        int status = change_new(&record, NULL, NULL, &change);
        if (status < 0)
            return status;
        change->task.told = true;
        task_append(first, last, &change->task);
        at += (size_t)length;
    }
    return 0;
}

void task_append(struct task **first, struct task **last, struct task *task)
{
    task->next = NULL;
    if (*first == NULL)
        *first = task;
    else
        (*last)->next = task;
    *last = task;
}

void task_free_all(struct task *first)
{
    while (first != NULL) {
        struct task *next = first->next;
        free(first);
        first = next;
    }
}
