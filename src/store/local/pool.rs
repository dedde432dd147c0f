//! A few threads that do what takes long.

use std::io;
use std::thread::{self, JoinHandle};

use crossbeam_channel::{Receiver, Sender, unbounded};

type Job = Box<dyn FnOnce() + Send>;

/// Threads that run jobs in the order they come. A job never waits for another to start. Dropping the pool waits for all of them.
pub(super) struct Pool {
    /// Taken when the pool is dropped.
    jobs: Option<Sender<Job>>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    pub(super) fn new(threads: usize) -> io::Result<Self> {
        let (jobs, queue) = unbounded();
        let mut pool = Self { jobs: Some(jobs), threads: Vec::with_capacity(threads) };
        for at in 0..threads {
            let queue: Receiver<Job> = queue.clone();
            let thread = thread::Builder::new()
                .name(format!("store-{at}"))
                .spawn(move || queue.iter().for_each(|job| job()))?;
            pool.threads.push(thread);
        }
        Ok(pool)
    }

    /// Has a job run soon. The queue has no limit: what is large is bounded by the store's budget.
    pub(super) fn run(&self, job: impl FnOnce() + Send + 'static) {
        if let Some(jobs) = &self.jobs {
            // The threads live as long as the pool: it cannot be refused.
            let _ = jobs.send(Box::new(job));
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
