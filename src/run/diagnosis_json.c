/* See diagnosis_json.h. Every field is there in every diagnosis, null where nothing is known; `evidence` has only what
 * there is. */
#include "run/diagnosis_json.h"

#include "text/json.h"

static json_t *text_or_null(const char *text)
{
    return text != NULL && text[0] != '\0' ? hc_json_text_lossy(text) : json_null();
}

static json_t *number_or_null(uint32_t number)
{
    return number > 0 ? json_integer(number) : json_null();
}

static json_t *evidence_of(const struct diagnosis *diagnosis)
{
    json_t *evidence = json_object();
    int failed = 0;
    for (size_t i = 0; i < diagnosis->evidence_count; i++) {
        double value = diagnosis->evidence[i].value;
        bool whole = value == (double)(json_int_t)value;
        failed |= json_object_set_new(evidence, diagnosis->evidence[i].name,
                                      whole ? json_integer((json_int_t)value) : json_real(value));
    }
    for (size_t i = 0; i < PROOF_COUNT; i++)
        if (diagnosis->proof[i][0] != '\0')
            failed |= json_object_set_new(evidence, diagnosis_proofs[i], hc_json_text_lossy(diagnosis->proof[i]));
    if (!failed)
        return evidence;
    json_decref(evidence);
    return NULL;
}

json_t *diagnosis_to_json(const struct diagnosis *diagnosis)
{
    char hint[256];
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "category",
                     text_or_null(diagnosis->category), "error_type", text_or_null(diagnosis->error_type), "message",
                     hc_json_text_lossy(diagnosis->message), "file", text_or_null(diagnosis->file), "line",
                     number_or_null(diagnosis->line), "column", number_or_null(diagnosis->column), "source",
                     text_or_null(diagnosis->source), "hint",
                     text_or_null(diagnosis_hint(diagnosis, hint, sizeof hint)), "evidence", evidence_of(diagnosis),
                     "fingerprint", text_or_null(diagnosis->fingerprint));
}
