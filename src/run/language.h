/*
 * Languages are data: one TOML file each (languages/README.md). This reads them, finds one by name, alias or file name,
 * says whether it is installed, and expands its commands. Adding a language changes no C.
 */
#ifndef HC_RUN_LANGUAGE_H
#define HC_RUN_LANGUAGE_H

#include "base/buf.h"
#include "run/config.h"
#include <regex.h>

struct language_stage {
    bool present;
    struct words command; /* with placeholders such as {entry}; see language_expand */
    struct limits limits; /* compile only: its own timeout, memory, … */
};

enum language_warmth { LANGUAGE_COLD, LANGUAGE_ZYGOTE, LANGUAGE_PRIMED };

struct language_set { /* modules that are loaded ahead together */
    char *name;
    struct words modules;
};

/* How its programs can be started before there is one. */
struct language_warm {
    enum language_warmth kind;          /* LANGUAGE_COLD: there is no [warm] table */
    struct language_stage run, compile; /* what is started ahead for each; compile: primed only */
    char *entry;                        /* warm only for programs of this name; NULL: any */
    struct words cold_env;              /* a request that sets one of these starts cold: "NAME", "PREFIX*" */
    regex_t import;                     /* where code names the modules that it imports: has_import */
    bool has_import;
    struct words env; /* "K=V", of what waits alone; {driver} is not expanded yet */
    struct language_set *sets;
    size_t set_count;
};

/* An interpreter that keeps its state between one piece of code and the next (docs/SANDBOXES.md). */
struct language_context {
    struct language_stage run; /* with the placeholders of what is started ahead: {driver}, not {entry} */
    char *preload;             /* the set of [warm] that it has unless it asks for another; NULL: none */
};

struct language {
    char *name, *title, *package, *file;     /* file: the name that code given as text gets, "main.py" */
    struct words aliases, extensions, needs; /* needs: absolute paths that must be executable or readable */
    struct words version_command;
    char *version_pattern; /* POSIX extended regular expression; its first group is the version */
    struct language_stage compile, run;
    struct words lookups; /* names that its programs look up while they start: pid 1 of a new cell does so, too */
    struct language_stage prepare; /* fills the working directory with what cells then have as {cache} */
    struct words env;              /* "K=V" */
    struct language_warm warm;
    struct language_context context;
    char *source;                         /* the TOML file it came from */
    char *text;                           /* of the file, where it has a table [diagnosis]: see language_diagnosis.h */
    struct language_diagnosis *diagnosis; /* NULL: there is none, or it was not needed yet */
    size_t users;                         /* besides its first owner: language_free takes one away */
    bool looked; /* languages_look was here, and `missing` holds: what it lacks on this machine, or NULL */
    const char *missing;
};

struct languages; /* all of them */

/* Folders in order: config's own, the user's, /etc/hotcell/languages, then the built-in folder (found from the build
 * tree or the installation). A later folder does not replace a name that an earlier one defined. */
int language_folders(const struct config *config, struct words *folders, struct hc_err *err);
int languages_load(const struct config *config, struct languages **out, struct hc_err *err);
void languages_free(struct languages *languages);
size_t languages_count(const struct languages *languages);
const struct language *languages_at(const struct languages *languages, size_t index); /* sorted by name */
/* For a program that is about to lose the file system: finds out now what language_available will be asked. */
void languages_look(struct languages *languages);

/* From config->languages where that is set: the language is then shared with it. Else only the one that is needed is
 * parsed where its file has the name asked for. Case and surrounding spaces do not matter. Unknown: an error that lists
 * what there is and suggests the nearest. */
int languages_find(const struct config *config, const char *name, struct language **out, struct hc_err *err);
int languages_find_by_file(const struct config *config, const char *file_name, struct language **out,
                           struct hc_err *err);
/* One file, whatever folder it is in. Strict: an unknown key is an error with file and line. */
int language_read(const char *path, struct language **out, struct hc_err *err);
void language_free(struct language *language);

/* One of its sets of modules, or NULL. */
const struct language_set *language_set_find(const struct language *language, const char *name);

bool language_available(const struct language *language, const char **missing);
/* What its tools are at this moment, as text that is another one when one of them was changed or replaced: path, inode,
 * size and times of each, and of the folder it is in, which an upgrade of any part of the package changes, too. */
void language_identity(const struct language *language, struct hc_buf *text);
/* The installed version, from a cache keyed by the tool's path, size and time, or by running version_command on the
 * host (trusted, own tool; clean environment, 10 s). "" when unknown. */
void language_version(const struct language *language, char *version, size_t size);
/* The version in what version_command has said. false: it is not there, and `version` is of no use. */
bool language_version_in(const struct language *language, const char *text, char *version, size_t size);

/* Where a compiled program goes: outside work_dir, so that it is never collected. The engine makes the folder. */
#define LANGUAGE_OUT "/tmp/.hotcell/main"
#define LANGUAGE_CACHE "/.hotcell/cache"
/* Expand a stage's command into argv, which is untouched on failure. `sources`: every file of the request with one of
 * the language's extensions, entry first. `limits`: what is in force for the stage; NULL: the table's defaults.
 *   {entry}    the entry, relative to work_dir     {stem}    its name without folder and extension
 *   {sources}  a word of its own: all sources      {dir}     work_dir
 *   {out}      `out`, usually LANGUAGE_OUT         {memory}  the memory limit in MiB
 *   {cpus}     CPUs, rounded up                    {cache}   LANGUAGE_CACHE/<name>: what [prepare] made, if it has
 * Any other lower-case word in braces is refused when the file is read; any other brace is text. A file name that
 * begins with a dash gets "./" before it, so that no tool takes it for an option. */
int language_expand(const struct language *language, const struct language_stage *stage, const char *work_dir,
                    const char *entry, const char *out, const struct words *sources, const struct limits *limits,
                    struct words *argv, struct hc_err *err);
/* The same for what is started ahead, when there is no program yet. `templates`: a command, or variables.
 *   {driver}   LANGUAGE_DRIVERS/<name>     {out} {dir} {memory} {cpus} {cache}   as above */
#define LANGUAGE_DRIVERS "/.hotcell/warm"
int language_expand_warm(const struct language *language, const struct words *templates, const char *work_dir,
                         const struct limits *limits, struct words *out, struct hc_err *err);
/* NULL when every placeholder of one word is known, else what is wrong with it, as the end of a sentence. `warm`: of
 * what is started ahead. */
const char *language_template_check(const char *template, bool warm);

#endif
