//! Processor time and memory of processes, from `/proc`.

use std::collections::{BTreeMap, HashSet};
use std::fs;

/// Clock ticks per second of `/proc`, which is 100 on every Linux that is around.
const TICKS: f64 = 100.0;

/// What the system tells of one process.
struct Stat {
    id: u32,
    parent: u32,
    name: String,
    /// Its own time, in ticks.
    own: u64,
    /// That of its children that have ended.
    ended: u64,
}

fn stat(id: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let (before, after) = text.rsplit_once(')')?;
    let name = before.split_once('(')?.1.to_owned();
    let fields: Vec<&str> = after.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some(Stat {
        id,
        parent: u32::try_from(number(1)?).ok()?,
        name,
        own: number(11)? + number(12)?,
        ended: number(13)? + number(14)?,
    })
}

/// Every process below this one, in any generation.
fn below() -> Vec<Stat> {
    let ids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let all: Vec<Stat> =
        ids.filter_map(|entry| stat(entry.file_name().to_str()?.parse().ok()?)).collect();
    let mut known = HashSet::from([std::process::id()]);
    loop {
        let before = known.len();
        known.extend(
            all.iter()
                .filter(|one| known.contains(&one.parent))
                .map(|one| one.id)
                .collect::<Vec<_>>(),
        );
        if known.len() == before {
            break;
        }
    }
    all.into_iter().filter(|one| one.id != std::process::id() && known.contains(&one.id)).collect()
}

/// Seconds of processor time, by what they were spent on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cpu {
    /// The engine.
    pub(crate) engine: f64,
    /// The workers of digestd.
    pub(crate) workers: f64,
    /// Of these, the threads of SQLite.
    pub(crate) sqlite: f64,
    /// PostgreSQL.
    pub(crate) postgres: f64,
    /// This process: the workers that do nothing, or the provider.
    pub(crate) own: f64,
}

#[expect(clippy::cast_precision_loss, reason = "ticks of minutes fit")]
fn seconds(ticks: u64) -> f64 {
    ticks as f64 / TICKS
}

impl Cpu {
    /// What was spent up to now.
    pub(crate) fn now() -> Self {
        let mut spent = Self::default();
        for one in below() {
            match one.name.as_str() {
                "temporal" => spent.engine += seconds(one.own),
                "postgres" => spent.postgres += seconds(one.own + one.ended),
                "digestd" => {
                    spent.workers += seconds(one.own);
                    spent.sqlite += seconds(in_threads(one.id, "sqlx-sqlite"));
                }
                _ => {}
            }
        }
        spent.own = stat(std::process::id()).map_or(0.0, |own| seconds(own.own));
        spent
    }

    /// What was spent since `before`, in milliseconds for each of `count`.
    pub(crate) fn since(self, before: Self, count: u32) -> Self {
        let each = |now: f64, then: f64| (now - then) * 1000.0 / f64::from(count.max(1));
        Self {
            engine: each(self.engine, before.engine),
            workers: each(self.workers, before.workers),
            sqlite: each(self.sqlite, before.sqlite),
            postgres: each(self.postgres, before.postgres),
            own: each(self.own, before.own),
        }
    }
}

/// The ticks of a process's threads whose name begins with `name`.
fn in_threads(process: u32, name: &str) -> u64 {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let of = |entry: fs::DirEntry| {
        let text = fs::read_to_string(entry.path().join("stat")).ok()?;
        let (before, after) = text.rsplit_once(')')?;
        let fields: Vec<&str> = after.split_whitespace().collect();
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        before.split_once('(')?.1.starts_with(name).then_some(number(11)? + number(12)?)
    };
    threads.filter_map(of).sum()
}

/// Resident memory of a process in MB: now, and at its highest.
pub(crate) fn memory(process: u32) -> (f64, f64) {
    let text = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let fields: BTreeMap<&str, &str> =
        text.lines().filter_map(|line| line.split_once(':')).collect();
    let megabytes = |name: &str| {
        let words = fields.get(name).and_then(|value| value.split_whitespace().next());
        words.and_then(|number| number.parse::<f64>().ok()).map_or(0.0, |number| number / 1024.0)
    };
    (megabytes("VmRSS"), megabytes("VmHWM"))
}
