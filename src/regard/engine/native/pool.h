/* A thread pool with a barrier. */
#ifndef REGARD_POOL_H
#define REGARD_POOL_H

typedef void (*task)(void *job, int id, int threads);

/* Run `work` on `threads` threads, the caller being number 0; returns when all are done. Callers take turns. */
int pool_run(task work, void *job, int threads);

/* Inside a task: wait for the other threads of the task. */
void pool_meet(void);

#endif
