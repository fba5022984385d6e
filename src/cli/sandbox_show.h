/* How sandboxes look in tables. */
#ifndef HC_CLI_SANDBOX_SHOW_H
#define HC_CLI_SANDBOX_SHOW_H

#include "cli/table.h"
#include <jansson.h>

enum table_style show_state_style(const char *state);
/* One cell: "job=42, who=ada", or "" for an empty object. */
void show_pairs(struct table *table, const json_t *object);

#endif
