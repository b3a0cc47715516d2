//! The one list of workflows: what a worker runs, and what a recorded history is replayed against.

use digest_workflows::customer::CustomerDigest;
use digest_workflows::page::DigestPage;
use digest_workflows::run::DigestRun;
use digest_workflows::weekly::WeeklyDigest;
use temporalio_common::WorkflowDefinition;
use temporalio_sdk::workflow_replayer::WorkflowReplayerOptions;
use temporalio_sdk::workflows::WorkflowImplementation;
use temporalio_sdk::{WorkerOptions, WorkflowRegistrationError};

/// What workflows are registered with.
pub trait Registry {
    /// Registers one.
    ///
    /// # Errors
    /// When its name is registered already.
    fn register<W>(&mut self) -> Result<&mut Self, WorkflowRegistrationError>
    where
        W: WorkflowImplementation,
        <W::Run as WorkflowDefinition>::Input: Send;
}

impl Registry for WorkerOptions {
    fn register<W>(&mut self) -> Result<&mut Self, WorkflowRegistrationError>
    where
        W: WorkflowImplementation,
        <W::Run as WorkflowDefinition>::Input: Send,
    {
        self.register_workflow::<W>()
    }
}

impl Registry for WorkflowReplayerOptions {
    fn register<W>(&mut self) -> Result<&mut Self, WorkflowRegistrationError>
    where
        W: WorkflowImplementation,
        <W::Run as WorkflowDefinition>::Input: Send,
    {
        self.register_workflow::<W>()
    }
}

/// Registers every workflow of digestd.
///
/// # Errors
/// When one of their names is registered already.
pub fn register(registry: &mut impl Registry) -> Result<(), WorkflowRegistrationError> {
    registry
        .register::<WeeklyDigest>()?
        .register::<DigestRun>()?
        .register::<DigestPage>()?
        .register::<CustomerDigest>()?;
    Ok(())
}
