//! Somebody who starts the weeks' runs, holds one now and then, and resumes whatever is held, by the
//! commands that there are, and again where one did not come through.

use super::weather::{Blow, Event, Part};
use crate::end_to_end::world::{Database, World};
use digest_workflows::operation::Period;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use sqlx::{Connection as _, PgConnection};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often somebody looks for runs that are held.
const LOOKS_EVERY: Duration = Duration::from_secs(3);

/// What is done, and when.
pub(super) struct Operator<'a> {
    world: &'a World,
    starts: Vec<(Duration, Period)>,
    holds: Vec<(Duration, Period)>,
}

impl<'a> Operator<'a> {
    /// The seed says whether the weeks run at once or one after the other.
    pub(super) fn new(world: &'a World, events: &[Event], length: Duration, seed: u64) -> Self {
        let periods = world.periods();
        let at_once = StdRng::seed_from_u64(seed).random_bool(0.5);
        let apart = if at_once { Duration::ZERO } else { length.mul_f64(0.2) };
        let starts = (0..).zip(&periods).map(|(week, period)| (apart * week, *period)).collect();
        let holds = events
            .iter()
            .filter_map(|event| match (event.part, event.blow) {
                (Part::Operator, Blow::Hold(week)) => {
                    Some((event.at, *periods.get(week % periods.len())?))
                }
                _ => None,
            })
            .collect();
        Self { world, starts, holds }
    }

    /// Works until the storm is over and every run is started; how many runs were held.
    pub(super) async fn work(&mut self, begun: Instant, over: &AtomicBool) -> u32 {
        let (mut times, mut looked) = (0, Instant::now());
        loop {
            let is_over = over.load(Ordering::SeqCst);
            let due = |at: Duration| is_over || at <= begun.elapsed();
            if let Some(next) = self.starts.iter().position(|(at, _)| due(*at)) {
                let period = self.starts[next].1;
                let said = self.world.digestd(&format!("run --period {period}")).await;
                if [0, 3].contains(&said.code) {
                    self.starts.remove(next);
                }
            } else if is_over {
                return times;
            }
            if let Some(next) = self.holds.iter().position(|(at, _)| due(*at)) {
                let (_, period) = self.holds.remove(next);
                let hold = format!("hold --period {period} --reason storm");
                times += u32::from(self.world.digestd(&hold).await.code == 0);
            }
            if looked.elapsed() > LOOKS_EVERY {
                self.resume_all().await;
                looked = Instant::now();
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Resumes every run that is held; how many were.
    pub(super) async fn resume_all(&self) -> u32 {
        let mut resumed = 0;
        for period in held(self.world).await.unwrap_or_default() {
            let resume = format!("resume --period {period} --reason over --yes");
            resumed += u32::from(self.world.digestd(&resume).await.code == 0);
        }
        resumed
    }
}

/// The runs that are held, if the database tells.
async fn held(world: &World) -> Result<Vec<String>, sqlx::Error> {
    let Database::Postgres(url) = &world.ledger else { return Ok(Vec::new()) };
    let mut connection = PgConnection::connect(url).await?;
    let sql = "select period from digestd.runs where campaign = $1 and held_since is not null";
    sqlx::query_scalar(sql).bind(&world.campaign).fetch_all(&mut connection).await
}
