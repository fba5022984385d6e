/*
 * Languages are data: one TOML file each (languages/README.md). This reads them, finds one by name, alias or file name,
 * says whether it is installed, and expands its commands. Adding a language changes no C.
 */
#ifndef HC_RUN_LANGUAGE_H
#define HC_RUN_LANGUAGE_H

#include "run/config.h"

struct language_stage {
    bool present;
    struct words command; /* with placeholders such as {entry}; see language_expand */
    struct limits limits; /* compile only: its own timeout, memory, … */
};

struct language {
    char *name, *title, *package, *file;     /* file: the name that code given as text gets, "main.py" */
    struct words aliases, extensions, needs; /* needs: absolute paths that must be executable or readable */
    struct words version_command;
    char *version_pattern; /* POSIX extended regular expression; its first group is the version */
    struct language_stage compile, run;
    struct words env; /* "K=V" */
    char *source;     /* the TOML file it came from */
};

struct languages; /* all of them */

/* Folders in order: config's own, the user's, /etc/hotcell/languages, then the built-in folder (found from the build
 * tree or the installation). A later folder does not replace a name that an earlier one defined. */
int languages_load(const struct config *config, struct languages **out, struct hc_err *err);
void languages_free(struct languages *languages);
size_t languages_count(const struct languages *languages);
const struct language *languages_at(const struct languages *languages, size_t index); /* sorted by name */

/* Only the one that is needed is parsed where its file has the name asked for. Case and surrounding spaces do not
 * matter. Unknown: an error that lists what there is and suggests the nearest. */
int languages_find(const struct config *config, const char *name, struct language **out, struct hc_err *err);
int languages_find_by_file(const struct config *config, const char *file_name, struct language **out,
                           struct hc_err *err);
/* One file, whatever folder it is in. Strict: an unknown key is an error with file and line. */
int language_read(const char *path, struct language **out, struct hc_err *err);
void language_free(struct language *language);

bool language_available(const struct language *language, const char **missing);
/* The installed version, from a cache keyed by the tool's path, size and time, or by running version_command on the
 * host (trusted, own tool; clean environment, 10 s). "" when unknown. */
void language_version(const struct language *language, char *version, size_t size);

/* Where a compiled program goes: outside work_dir, so that it is never collected. The engine makes the folder. */
#define LANGUAGE_OUT "/tmp/.hotcell/main"
/* Expand a stage's command into argv, which is untouched on failure. `sources`: every file of the request with one of
 * the language's extensions, entry first. `limits`: what is in force for the stage; NULL: the table's defaults.
 *   {entry}    the entry, relative to work_dir     {stem}    its name without folder and extension
 *   {sources}  a word of its own: all sources      {dir}     work_dir
 *   {out}      LANGUAGE_OUT                        {memory}  the memory limit in MiB
 *   {cpus}     CPUs, rounded up
 * Any other lower-case word in braces is refused when the file is read; any other brace is text. A file name that
 * begins with a dash gets "./" before it, so that no tool takes it for an option. */
int language_expand(const struct language *language, const struct language_stage *stage, const char *work_dir,
                    const char *entry, const struct words *sources, const struct limits *limits, struct words *argv,
                    struct hc_err *err);
/* NULL when every placeholder of one word is known, else what is wrong with it, as the end of a sentence. */
const char *language_template_check(const char *template);

#endif
