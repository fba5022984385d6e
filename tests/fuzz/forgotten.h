/* What the warden of fuzz_warden.c leaves behind when it leaves in haste. Its own structs are known there. */
#ifndef HC_FUZZ_FORGOTTEN_H
#define HC_FUZZ_FORGOTTEN_H

/* One that left in haste has not cleared up: the kernel would. */
static void forget_cells(struct warden *warden)
{
    while (warden->cells) {
        struct held_cell *cell = warden->cells;
        warden->cells = cell->next;
        while (cell->jobs) {
            struct held_job *job = cell->jobs;
            cell->jobs = job->next;
            for (size_t i = 0; i < 5; i++)
                hc_close(job->fds[i]);
            hc_close(job->pidfd);
            hc_close(job->report);
            hc_close(job->door);
            hc_close(job->door_inside);
            kept_release(&job->kept);
            free(job);
        }
        lasting_release(cell);
        hc_close(cell->cell.pidfd);
        hc_close(cell->cell.report);
        free(cell);
    }
}

/* The kernel ends zygotes as well. */
static void forget_zygotes(struct warden *warden)
{
    while (warden->warm) {
        struct warm *warm = warden->warm;
        warden->warm = warm->next;
        while (warm->zygotes) {
            struct zygote *zygote = warm->zygotes;
            while (zygote->first) {
                struct pending *pending = zygote->first;
                zygote->first = pending->next;
                free(pending);
            }
            zygote_free(zygote);
        }
        for (uint32_t i = 0; i < warm->spec.stages; i++)
            hc_close(warm->blocks[i]);
        free(warm);
    }
}

#endif
