//! Everything that a storm is about: servers, connections, workers; and what each blow does to it.

use super::Deployment;
use super::provider::{Provider, settings};
use super::tally::Tally;
use super::weather::{Blow, Event, Part, SUSPENDED_MAX, WORKERS, Wire};
use crate::end_to_end::crash_points::Kind;
use crate::end_to_end::world::{Database, Worker, World, server, world};
use digest_tests::absent::absent;
use digest_tests::faketime::WrongClock;
use digest_tests::postgres::Postgres;
use digest_tests::proxy::{Fault, Proxy};
use digestd::engine::server::DevServer;
use jiff::SignedDuration;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use url::Url;

/// How long nobody starts a worker again that has ended, as a supervisor does.
const RESTARTED_AFTER: Duration = Duration::from_millis(500);

/// What outlives a storm, for the next one.
pub(super) struct Ground {
    pub(super) postgres: Postgres,
    pub(super) engine: DevServer,
    /// Where the engine has its file.
    _folder: TempDir,
}

/// One deployment in its storm.
pub(super) struct Stage {
    pub(super) ground: Ground,
    pub(super) world: Arc<World>,
    pub(super) provider: Provider,
    pub(super) tally: Tally,
    /// Whether the database is there to be asked.
    pub(super) is_database_up: bool,
    wires: Vec<(Wire, Proxy)>,
    /// How often each connection's faults had struck when the one that goes on began, and its name.
    planted: Vec<Option<(&'static str, u32)>>,
    workers: Vec<Place>,
}

/// The place of one worker, which is filled again whenever it is empty.
struct Place {
    worker: Option<Worker>,
    ended: Instant,
    suspended: bool,
    /// The crash point that it is to die at, until it has.
    armed: Option<String>,
    clock: Option<WrongClock>,
}

impl Ground {
    /// A database and an engine of the test's own; `None` where one is absent.
    pub(super) async fn prepare() -> Option<Self> {
        let Some(postgres) = Postgres::start_own().await.unwrap() else {
            absent("PostgreSQL", "storms", "run `apt-get install postgresql`");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        let engine = server(Some(folder.path().join("temporal.db"))).await?;
        Some(Self { postgres, engine, _folder: folder })
    }
}

impl Stage {
    /// A deployment on this ground: three workers on one ledger, each connection through a proxy.
    pub(super) async fn set(ground: Ground, deployment: &Deployment, rate: f64) -> Option<Self> {
        let Deployment { name, kind, seed, customers, weeks } = deployment;
        let (kind, seed, customers, weeks) = (*kind, *seed, *customers, *weeks);
        let url = ground.postgres.database(&name.replace('-', "_")).await.unwrap();
        let plan = world(name)
            .postgres_at(url.clone())
            .customers(customers)
            .weeks(weeks)
            .with("dispatch.page_size", 10)
            .with("dispatch.in_flight", 40)
            .with("provider.rate_per_second", rate)
            .with("provider.timeout", "1s")
            .with("provider.lease", "4s")
            // Above the longest time for which a worker is stopped between check and write.
            .with("provider.settle", format!("{}s", SUSPENDED_MAX.as_secs() + 2))
            .with("unknown.lookup_every", "1s")
            .with("unknown.escalate_after", "20s");
        let mut plan = settings(kind, plan);
        for class in ["transport", "overloaded", "rate_limited", "ambiguous", "cleanup"] {
            // However long the storm lasts, nobody's tries are used up.
            plan = plan.with(&format!("retry.{class}.max_attempts"), 1_000);
        }
        let mut world = plan.start_on(ground.engine.address()).await?;
        let provider = Provider::start(kind, &mut world, seed).await;
        let database = Url::parse(&url).unwrap();
        let target = format!("{}:{}", database.host_str().unwrap(), database.port().unwrap());
        let ledger = Proxy::start(target).await.unwrap();
        let engine = Proxy::start(ground.engine.address().to_string()).await.unwrap();
        let outside = Proxy::start(provider.address().to_string()).await.unwrap();
        let mut through = database;
        through.set_port(Some(ledger.address().port())).unwrap();
        world.edit("ledger.url", through.to_string());
        world.edit("source.url", through.to_string());
        world.edit("engine.address", engine.address().to_string());
        let scheme = if kind == Kind::Smtp { "smtp" } else { "http" };
        world.edit("provider.url", format!("{scheme}://{}", outside.address()));
        world.ledger = Database::Postgres(url);
        let wires = vec![(Wire::Ledger, ledger), (Wire::Engine, engine), (Wire::Provider, outside)];
        let mut stage = Self {
            ground,
            world: Arc::new(world),
            provider,
            tally: Tally::default(),
            is_database_up: true,
            planted: wires.iter().map(|_| None).collect(),
            wires,
            workers: Vec::new(),
        };
        for number in 0..WORKERS {
            let file = stage.world.folder().join(format!("clock-{number}"));
            let clock = WrongClock::new(file, "storms of wrong clocks");
            let mut place =
                Place { worker: None, ended: Instant::now(), suspended: false, armed: None, clock };
            place.fill(&stage.world);
            stage.workers.push(place);
        }
        Some(stage)
    }

    /// Whether workers' clocks can be wrong.
    pub(super) fn has_clocks(&self) -> bool {
        self.workers.iter().all(|place| place.clock.is_some())
    }

    fn proxy(&self, wire: Wire) -> &Proxy {
        &self.wires.iter().find(|(name, _)| *name == wire).unwrap().1
    }

    /// Lets one thing happen.
    pub(super) async fn suffer(&mut self, event: Event) {
        let Event { part, blow, .. } = event;
        match part {
            Part::Worker(number) => self.strike_worker(number, blow),
            Part::Clock(number) => {
                if let (Blow::SetClock(ahead), Some(clock)) = (blow, &self.workers[number].clock) {
                    clock.set(ahead);
                    self.tally.add(&part, &format!("{ahead:#} wrong"));
                }
            }
            Part::Database => {
                if blow == Blow::Up {
                    self.ground.postgres.restart().await.unwrap();
                    self.is_database_up = true;
                    return;
                }
                self.is_database_up = false;
                if blow == Blow::Down {
                    self.ground.postgres.kill().await.unwrap();
                } else {
                    self.ground.postgres.stop_immediately().await.unwrap();
                }
                self.tally.add(&part, blow.name());
            }
            Part::Engine => {
                if blow == Blow::Up {
                    self.ground.engine.restart().await.unwrap();
                } else {
                    self.ground.engine.kill();
                    self.tally.add(&part, blow.name());
                }
            }
            Part::Provider => {
                // Nobody but it is behind this proxy.
                let proxy = self.proxy(Wire::Provider);
                if blow == Blow::Up {
                    proxy.heal();
                    self.provider.restart().await;
                } else {
                    proxy.cut();
                    self.provider.kill();
                    self.tally.add(&part, blow.name());
                }
            }
            Part::Wire(wire) => self.strike_wire(wire, blow),
            // Another hand does this.
            Part::Operator => {}
        }
    }

    fn strike_worker(&mut self, number: usize, blow: Blow) {
        let part = Part::Worker(number);
        let place = &mut self.workers[number];
        match blow {
            Blow::Suspend => {
                if let Some(worker) = &mut place.worker
                    && worker.has_ended().is_none()
                {
                    worker.suspend();
                    place.suspended = true;
                    self.tally.add(&part, blow.name());
                }
            }
            Blow::GoOn => place.go_on(),
            _ => {
                if let Some(mut worker) = place.worker.take() {
                    if worker.has_ended().is_none() && blow == Blow::Kill {
                        self.tally.add(&part, blow.name());
                    } else {
                        self.tally.account(&mut worker);
                    }
                    worker.kill();
                }
                place.suspended = false;
                place.armed = match blow {
                    Blow::DieAt(point, passage) => Some(format!("{point}:{passage}")),
                    _ => None,
                };
                place.fill(&self.world);
            }
        }
    }

    fn strike_wire(&mut self, wire: Wire, blow: Blow) {
        let Blow::Plant(fault) = blow else { return };
        let index = self.wires.iter().position(|(name, _)| *name == wire).unwrap();
        let proxy = &self.wires[index].1;
        let struck = proxy.struck();
        if let Some((name, before)) = self.planted[index].take()
            && struck > before
        {
            self.tally.add(&Part::Wire(wire), name);
        }
        if fault != Fault::None {
            self.planted[index] = Some((blow.name(), struck));
        }
        proxy.plant(fault);
    }

    /// Fills the places of workers that have ended.
    pub(super) fn supervise(&mut self) {
        for place in &mut self.workers {
            if let Some(mut worker) = place.worker.take() {
                if worker.has_ended().is_none() {
                    place.worker = Some(worker);
                    continue;
                }
                self.tally.account(&mut worker);
                place.ended = Instant::now();
                if worker.has_reached_its_point() {
                    place.armed = None;
                }
            }
            if place.ended.elapsed() >= RESTARTED_AFTER {
                place.fill(&self.world);
            }
        }
    }

    /// Everything is whole again, and whoever waits for a crash point or has a wrong clock is not
    /// there any more.
    pub(super) async fn clear_up(&mut self) {
        for wire in [Wire::Ledger, Wire::Engine, Wire::Provider] {
            // What was stalled never recovers, and so must not stay open.
            self.proxy(wire).cut();
            self.strike_wire(wire, Blow::Plant(Fault::None));
        }
        if !self.is_database_up {
            self.ground.postgres.restart().await.unwrap();
            self.is_database_up = true;
        }
        self.ground.engine.restart().await.unwrap();
        self.provider.restart().await;
        for place in &mut self.workers {
            place.go_on();
            if let Some(clock) = &place.clock {
                clock.set(SignedDuration::ZERO);
            }
            if let Some(mut worker) = place.worker.take() {
                self.tally.account(&mut worker);
                worker.kill();
            }
            place.armed = None;
            place.fill(&self.world);
        }
    }

    /// Ends the deployment; its ground and what was counted.
    pub(super) fn end(mut self) -> (Ground, Tally) {
        for (what, times) in self.provider.misbehaved(&self.world) {
            self.tally.add_many(&"provider's own faults", &what, times);
        }
        (self.ground, self.tally)
    }
}

impl Place {
    fn fill(&mut self, world: &World) {
        let mut variables = Vec::new();
        if let Some(clock) = &self.clock {
            variables.extend(clock.variables());
        }
        if let Some(point) = &self.armed {
            variables.push(("DIGESTD_CRASH_AT", point));
        }
        self.worker = Some(world.spawn_worker(&variables));
    }

    fn go_on(&mut self) {
        if let Some(worker) = self.worker.as_ref().filter(|_| self.suspended) {
            worker.go_on();
        }
        self.suspended = false;
    }
}

impl Tally {
    /// Counts how a worker has ended by itself, if it has.
    fn account(&mut self, worker: &mut Worker) {
        let Some(status) = worker.has_ended() else { return };
        let said = worker.said();
        if let Some(point) = crash_point(&said) {
            self.add(&"worker at a crash point", &point);
        } else if said.contains("the worker is ready") {
            println!("a worker ended by itself with {status}: {}", last_line(&said));
            self.add(&"worker", "ended by itself");
        } else {
            self.add(&"worker", "could not start");
        }
    }
}

/// Which crash point has ended a worker that has said this.
fn crash_point(said: &str) -> Option<String> {
    let (before, _) = said.split_once(": the process ends by SIGKILL")?;
    Some(before.rsplit("crash point ").next()?.to_owned())
}

fn last_line(said: &str) -> &str {
    said.trim_end().lines().next_back().unwrap_or_default()
}
