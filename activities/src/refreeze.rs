//! Rendering a dead letter anew: from the source's row of today, by today's templates.

use crate::gates::parameters;
use crate::ledger::{FrozenData, Refrozen, Run};
use crate::message::{RenderInput, Rendered, Templates};
use crate::source::{FaultReason, Parameters, Source, SourceError};
use digest_workflows::operation::{Failure, OperationKey};
use serde_json::Value;

/// Why a message cannot be rendered anew.
#[derive(Debug, thiserror::Error)]
pub enum RefreezeError {
    /// The source does not answer, or refuses the query.
    #[error(transparent)]
    Source(SourceError),
    /// The query `customers` does not return the customer any more.
    #[error("the customers query returns no such customer any more")]
    Gone,
    /// It returns rows that make no operation.
    #[error("the customer's row cannot be used: {0}")]
    Faulty(FaultReason),
    /// The customer has no address.
    #[error("the customer has no address")]
    NoAddress,
    /// There are no rows to tell about.
    #[error("there is nothing to send: the customer has no rows")]
    NothingToSend,
    /// The templates still fail.
    #[error("it still cannot be rendered: {0}")]
    Unrenderable(Failure),
    /// The run was never started.
    #[error("the run has no window recorded")]
    NoWindow,
}

/// Renders the message of `key` anew. Nothing is stored.
///
/// # Errors
/// [`RefreezeError`].
pub async fn refreeze(
    source: &Source,
    templates: &Templates,
    run: &Run,
    key: &OperationKey,
) -> Result<Refrozen, RefreezeError> {
    let parameters = parameters(run).ok_or(RefreezeError::NoWindow)?;
    let data = data_of(source, &parameters, key).await?;
    let no_address = match data.customer.get("address") {
        None | Some(Value::Null) => true,
        Some(address) => address.as_str().is_some_and(|address| address.trim().is_empty()),
    };
    if no_address {
        return Err(RefreezeError::NoAddress);
    }
    let input = RenderInput {
        key,
        customer: &data.customer,
        rows: &data.rows,
        selected_at: parameters.selected_at,
    };
    match templates.render(&input) {
        Ok(Rendered::Message(message)) => Ok(Refrozen { message: *message, data }),
        Ok(Rendered::NothingToSend) => Err(RefreezeError::NothingToSend),
        Err(failure) => Err(RefreezeError::Unrenderable(failure)),
    }
}

/// What the source says of one customer today, by the campaign's own queries.
///
/// # Errors
/// [`RefreezeError`], that the message cannot be rendered excepted.
pub async fn data_of(
    source: &Source,
    parameters: &Parameters<'_>,
    key: &OperationKey,
) -> Result<FrozenData, RefreezeError> {
    let read = async {
        let id = source.customer_id(parameters, &key.customer_id()).await?;
        let page = source.customer(parameters, &id).await?;
        let rows = source.rows_page(parameters, std::slice::from_ref(&id)).await?.remove(&id);
        Ok((page, rows.unwrap_or_else(|| Ok(Vec::new()))))
    };
    let (page, rows) = read.await.map_err(RefreezeError::Source)?;
    if let Some(fault) = page.faults.into_iter().next() {
        return Err(RefreezeError::Faulty(fault.reason));
    }
    let customer = page.customers.into_iter().next().ok_or(RefreezeError::Gone)?;
    let rows = rows.map_err(RefreezeError::Faulty)?.into_iter().map(Value::Object).collect();
    Ok(FrozenData { customer: customer.data.into_inner(), rows })
}
