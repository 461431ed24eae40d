//! How many threads compute: chosen by measuring, and watched while they do.
//!
//! A neighbour that keeps one core busy can make two threads many times slower than one, because each step
//! waits for its slowest thread. So the governor compares what steps take: it tries fewer threads at the
//! start and whenever steps become much slower, and goes back up when the machine is free again.

use std::time::{Duration, Instant};

/// Decode steps that make a trial.
const TRIAL: usize = 4;
/// A step that takes this many times the usual is a sign of trouble …
const SLOW: f64 = 1.6;
/// … after so many of them in a row.
const PATIENCE: u32 = 3;
/// A change must gain this much to be kept.
const GAIN: f64 = 0.95;

/// Decides the threads of the next step from the times of those before.
#[derive(Debug)]
pub struct Governor {
    /// Thread counts that may be used, most first.
    ladder: Vec<u32>,
    /// Which of them is in use.
    at: usize,
    /// Usual milliseconds a token at each of them, lately.
    usual: Vec<Option<f64>>,
    /// Slow steps in a row.
    slow: u32,
    /// The trial that runs.
    trial: Option<Trial>,
    /// Other counts are not tried before then.
    quiet_until: Option<Instant>,
    /// How long the next pause between trials is.
    pause: Duration,
    /// Fixed by the user: nothing is tried.
    fixed: bool,
}

#[derive(Debug)]
struct Trial {
    /// Where it came from and what a step took there.
    from: usize,
    usual: f64,
    steps: Vec<f64>,
    why: &'static str,
}

/// A change that has been decided, to be told.
#[derive(Debug, PartialEq, Eq)]
pub struct Change {
    /// Threads from now on.
    pub threads: u32,
    /// Why.
    pub why: &'static str,
}

const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(16);

impl Governor {
    /// A governor for a machine with so many cores, or one that always answers `fixed` if that is not 0.
    pub fn new(cores: u32, fixed: u32) -> Self {
        let cores = cores.max(1);
        let mut ladder = vec![cores, cores * 3 / 4, cores / 2, cores / 4, 1];
        ladder.retain(|n| *n > 0);
        ladder.dedup();
        if fixed > 0 {
            ladder = vec![fixed];
        }
        let usual = vec![None; ladder.len()];
        Self { ladder, at: 0, usual, slow: 0, trial: None, quiet_until: None, pause: FIRST_PAUSE, fixed: fixed > 0 }
    }

    /// Threads for the next step.
    pub fn threads(&self) -> u32 {
        self.ladder[self.at]
    }

    /// Takes the time of a step of one token and tells what has been decided, if anything.
    pub fn step(&mut self, ms: f64, now: Instant) -> Option<Change> {
        if self.fixed || self.ladder.len() < 2 {
            return None;
        }
        if self.trial.is_some() {
            return self.trial_step(ms, now);
        }
        let Some(usual) = self.usual[self.at] else {
            self.usual[self.at] = Some(ms);
            return None;
        };
        if ms > usual * SLOW {
            self.slow += 1;
            // A very slow step needs no second one.
            if (self.slow >= PATIENCE || ms > usual * 8.0) && self.may_try(now) {
                self.slow = 0;
                self.begin(if self.at + 1 < self.ladder.len() { self.at + 1 } else { 0 }, ms, "steps became slower");
            }
            return None;
        }
        self.slow = 0;
        // Slowly upwards (a longer context costs more), quickly downwards.
        self.usual[self.at] = Some(if ms < usual { ms.midpoint(usual) } else { usual + (ms - usual) * 0.05 });
        if self.may_try(now) {
            if self.usual.get(self.at + 1).is_some_and(Option::is_none) {
                self.begin(self.at + 1, self.usual[self.at].unwrap_or(ms), "measured");
            } else if self.at > 0 && self.quiet_until.is_some() {
                self.begin(self.at - 1, self.usual[self.at].unwrap_or(ms), "the machine is free again");
            }
        }
        None
    }

    fn may_try(&self, now: Instant) -> bool {
        self.quiet_until.is_none_or(|until| now >= until)
    }

    fn begin(&mut self, to: usize, usual: f64, why: &'static str) {
        self.trial = Some(Trial { from: self.at, usual, steps: Vec::new(), why });
        self.at = to;
    }

    fn trial_step(&mut self, ms: f64, now: Instant) -> Option<Change> {
        let trial = self.trial.as_mut()?;
        trial.steps.push(ms);
        // A trial that is hopeless ends at once: with a busy neighbour a single step may take very long.
        if trial.steps.len() < TRIAL && ms < trial.usual * 3.0 {
            return None;
        }
        let trial = self.trial.take()?;
        let mut steps = trial.steps;
        steps.sort_by(f64::total_cmp);
        let median = steps[steps.len() / 2];
        self.usual[self.at] = Some(median);
        if median < trial.usual * GAIN {
            self.pause = FIRST_PAUSE;
            self.quiet_until = Some(now + self.pause);
            return Some(Change { threads: self.threads(), why: trial.why });
        }
        self.at = trial.from;
        self.quiet_until = Some(now + self.pause);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        None
    }
}

/// Physical cores that this process may use: its CPU affinity and cgroup quota count, hyperthreads do not.
pub fn cores() -> u32 {
    let usable = std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(1));
    physical().map_or(usable, |n| n.clamp(1, usable))
}

#[cfg(target_os = "linux")]
fn physical() -> Option<u32> {
    let mut seen = std::collections::BTreeSet::new();
    for entry in std::fs::read_dir("/sys/devices/system/cpu").ok()?.flatten() {
        let path = entry.path().join("topology/thread_siblings_list");
        if let Ok(siblings) = std::fs::read_to_string(path) {
            seen.insert(siblings);
        }
    }
    u32::try_from(seen.len()).ok().filter(|n| *n > 0)
}

#[cfg(not(target_os = "linux"))]
fn physical() -> Option<u32> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs steps on a made-up machine: milliseconds for each thread count. Returns the threads in the end.
    fn run(governor: &mut Governor, clock: &mut Instant, steps: usize, cost: impl Fn(u32) -> f64) -> u32 {
        for _ in 0..steps {
            let ms = cost(governor.threads());
            *clock += Duration::from_secs_f64(ms / 1000.0);
            governor.step(ms, *clock);
        }
        governor.threads()
    }

    #[test]
    fn goes_down_for_a_neighbour_and_up_when_it_is_gone() {
        let mut clock = Instant::now();
        let mut governor = Governor::new(2, 0);
        let free = |n| if n == 2 { 5.0 } else { 6.0 };
        let busy = |n| if n == 2 { 300.0 } else { 6.2 };
        assert_eq!(run(&mut governor, &mut clock, 50, free), 2);
        assert_eq!(run(&mut governor, &mut clock, 12, busy), 1);
        // The look upwards is rare: most steps stay on one thread.
        let before = clock;
        run(&mut governor, &mut clock, 1000, busy);
        assert!(clock - before < Duration::from_secs(9), "{:?}", clock - before);
        assert_eq!(run(&mut governor, &mut clock, 4000, free), 2);
    }

    #[test]
    fn finds_that_fewer_are_faster() {
        let mut clock = Instant::now();
        let mut governor = Governor::new(8, 0);
        assert_eq!(run(&mut governor, &mut clock, 60, |n| 10.0 + f64::from(n.abs_diff(6))), 6);
    }

    #[test]
    fn fixed_threads_stay() {
        let mut clock = Instant::now();
        let mut governor = Governor::new(8, 3);
        assert_eq!(run(&mut governor, &mut clock, 60, |_| 5.0), 3);
    }

    #[test]
    fn a_growing_context_is_no_trouble() {
        let mut clock = Instant::now();
        let mut governor = Governor::new(2, 0);
        for i in 0..3000u32 {
            let ms = (if governor.threads() == 2 { 5.0 } else { 6.5 }) + f64::from(i) * 0.004;
            clock += Duration::from_secs_f64(ms / 1000.0);
            assert_eq!(governor.step(ms, clock), None, "step {i}");
        }
    }
}
