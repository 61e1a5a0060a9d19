/* A thread pool with a barrier.
 *
 * A decode step passes some 150 barriers, so threads spin at them; a thread yields only after a while, which on a busy
 * machine lets the one it waits for run. Between calls threads spin briefly, then sleep.
 */
#include "pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>

#define MOST 64
#define PATIENCE 2000  /* spins at a barrier before yielding */
#define LINGER 20000   /* spins between calls before sleeping, a quarter of a millisecond or so */

static struct {
    pthread_mutex_t turn, asleep; /* one caller at a time; guards sleeping */
    pthread_cond_t wake;
    int size; /* threads there are, the caller included */
    task work;
    void *job;
    int threads;
    unsigned before; /* the call before a thread's first */
    _Alignas(64) atomic_uint call;    /* counts calls */
    _Alignas(64) atomic_uint arrived; /* at the barrier */
    _Alignas(64) atomic_uint met;     /* counts meetings */
} pool = {
    .turn = PTHREAD_MUTEX_INITIALIZER,
    .asleep = PTHREAD_MUTEX_INITIALIZER,
    .wake = PTHREAD_COND_INITIALIZER,
    .size = 1,
};

static inline void breathe(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

void pool_meet(void) {
    const unsigned threads = (unsigned)pool.threads; /* read before arriving: once all have, the next call may change it */
    if (threads == 1) return;
    const unsigned now = atomic_load_explicit(&pool.met, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&pool.arrived, 1, memory_order_acq_rel) + 1 == threads) {
        atomic_store_explicit(&pool.arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&pool.met, now + 1, memory_order_release);
        return;
    }
    for (int spins = 0; atomic_load_explicit(&pool.met, memory_order_acquire) == now; spins++) {
        if (spins < PATIENCE) breathe();
        else sched_yield();
    }
}

/* The low byte of a call is how many threads it wants, so that both are read at once. */
static unsigned next_call(unsigned seen) {
    unsigned call;
    for (int spins = 0; spins < LINGER; spins++) {
        if ((call = atomic_load_explicit(&pool.call, memory_order_acquire)) != seen) return call;
        breathe();
    }
    pthread_mutex_lock(&pool.asleep);
    while ((call = atomic_load_explicit(&pool.call, memory_order_acquire)) == seen)
        pthread_cond_wait(&pool.wake, &pool.asleep);
    pthread_mutex_unlock(&pool.asleep);
    return call;
}

static void *wait_for_work(void *number) {
    const int id = (int)(intptr_t)number;
    for (unsigned call = pool.before;;) {
        call = next_call(call);
        if (id < (int)(call & 255)) {
            pool.work(pool.job, id, pool.threads);
            pool_meet();
        }
    }
    return 0;
}

/* A forked process has only the thread that forked. */
static void forget(void) {
    pool.size = 1;
    atomic_store(&pool.arrived, 0);
    pthread_mutex_init(&pool.turn, 0);
    pthread_mutex_init(&pool.asleep, 0);
    pthread_cond_init(&pool.wake, 0);
}

static int grow(int threads) {
    static int guarded;
    if (!guarded) guarded = pthread_atfork(0, 0, forget) == 0;
    pool.before = atomic_load(&pool.call);
    for (; pool.size < threads; pool.size++) {
        pthread_t thread;
        if (pthread_create(&thread, 0, wait_for_work, (void *)(intptr_t)pool.size)) break;
        pthread_detach(thread);
    }
    return pool.size < threads ? pool.size : threads;
}

int pool_run(task work, void *job, int threads) {
    threads = threads < 1 ? 1 : threads > MOST ? MOST : threads;
    pthread_mutex_lock(&pool.turn);
    pool.threads = threads = grow(threads);
    pool.work = work;
    pool.job = job;
    if (threads > 1) {
        const unsigned call = atomic_load(&pool.call);
        pthread_mutex_lock(&pool.asleep);
        atomic_store_explicit(&pool.call, ((call >> 8) + 1) << 8 | (unsigned)threads, memory_order_release);
        pthread_cond_broadcast(&pool.wake);
        pthread_mutex_unlock(&pool.asleep);
    }
    work(job, 0, threads);
    pool_meet();
    pthread_mutex_unlock(&pool.turn);
    return threads;
}
