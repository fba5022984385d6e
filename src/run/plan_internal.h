/* What plan.c and plan_stages.c share. */
#ifndef HC_RUN_PLAN_INTERNAL_H
#define HC_RUN_PLAN_INTERNAL_H

#include "run/plan.h"

int plan_no_memory(struct hc_err *err);
/* The environment of a program in a language (NULL: none) where the request adds nothing. 0 or -ENOMEM. */
int plan_base_env(const char *work_dir, const struct language *language, struct words *env);
/* A later setting of a name replaces the earlier one. */
int plan_set_env(struct words *env, const char *setting);
/* A compile stage's own limits replace the run's, within the operator's ceilings. */
struct limits plan_compile_limits(const struct config *config, const struct limits *run, const struct limits *own);
/* The stages and tests, with their commands and limits, and the disk of the cell. After the language and the mounts. */
int plan_stages(const struct config *config, struct plan *plan, struct hc_err *err);

#endif
