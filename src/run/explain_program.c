/* The program that a diagnosis points into: the files of a plan's request by the names that they have in the cell. */
#include "run/explain.h"

#include "base/fd.h"
#include "run/plan.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEPT_LIMIT = 1024 * 1024 };

/* `files` has request->file_count + 1 rows. */
static size_t list_files(const struct plan *plan, struct explain_file *files)
{
    const struct request *request = plan->request;
    size_t count = 0;
    if (request->has_code && plan->entry != NULL)
        files[count++] = (struct explain_file){plan->entry, request->code.data, request->code.length};
    for (size_t i = 0; i < request->file_count; i++)
        files[count++] = (struct explain_file){request->files[i].path, request->files[i].content.data,
                                               request->files[i].content.length};
    return count;
}

void result_explain_plan(struct result *result, const struct plan *plan)
{
    hc_cleanup_free struct explain_file *files = calloc(plan->request->file_count + 1, sizeof *files);
    struct explain_context context = {.language = plan->language, .work_dir = plan->cell.work_dir, .files = files};
    if (files != NULL)
        context.file_count = list_files(plan, files);
    result_explain(result, &context);
}

struct explain_kept {
    char work_dir[sizeof((struct plan *)NULL)->cell.work_dir];
    size_t count;
    struct explain_file files[]; /* and behind them what they point to */
};

static const char *copy(char **space, const char *bytes, size_t length)
{
    char *place = *space;
    memcpy(place, bytes, length);
    place[length] = '\0';
    *space += length + 1;
    return place;
}

struct explain_kept *explain_keep(const struct plan *plan)
{
    hc_cleanup_free struct explain_file *files = calloc(plan->request->file_count + 1, sizeof *files);
    if (files == NULL)
        return NULL;
    size_t count = list_files(plan, files), bytes = 0, contents = 0;
    for (size_t i = 0; i < count; i++) {
        if (contents + files[i].length > KEPT_LIMIT) { /* data, most likely: no line of it is needed */
            files[i].data = "";
            files[i].length = 0;
        }
        contents += files[i].length;
        bytes += strlen(files[i].path) + files[i].length + 2;
    }
    struct explain_kept *kept = malloc(sizeof *kept + count * sizeof *files + bytes);
    if (kept == NULL)
        return NULL;
    char *space = (char *)&kept->files[count];
    snprintf(kept->work_dir, sizeof kept->work_dir, "%s", plan->cell.work_dir);
    kept->count = count;
    for (size_t i = 0; i < count; i++)
        kept->files[i] = (struct explain_file){copy(&space, files[i].path, strlen(files[i].path)),
                                               copy(&space, files[i].data, files[i].length), files[i].length};
    return kept;
}

void result_explain_kept(struct result *result, struct language *language, const struct explain_kept *kept)
{
    const struct explain_context context = {
        .language = language, .work_dir = kept->work_dir, .files = kept->files, .file_count = kept->count};
    result_explain(result, &context);
}
