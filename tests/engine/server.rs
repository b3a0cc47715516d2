//! The development server as a child process.

use crate::{binary, eventually, server};
use digestd::engine::server::{DevServer, ServerError, ServerOptions};
use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use temporalio_client::grpc::WorkflowService;
use temporalio_client::tonic::IntoRequest as _;
use temporalio_common::protos::temporal::api::common::v1::{WorkflowExecution, WorkflowType};
use temporalio_common::protos::temporal::api::enums::v1::WorkflowExecutionStatus;
use temporalio_common::protos::temporal::api::taskqueue::v1::TaskQueue;
use temporalio_common::protos::temporal::api::workflowservice::v1::{
    DescribeWorkflowExecutionRequest, StartWorkflowExecutionRequest,
};

#[tokio::test]
async fn an_acknowledged_start_survives_a_crash_of_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut server) = server(Some(folder.path().join("temporal.db")), true).await else {
        return;
    };
    let client = server.client("a test").await.unwrap();
    let start = StartWorkflowExecutionRequest {
        namespace: "default".to_owned(),
        workflow_id: "survivor".to_owned(),
        workflow_type: Some(WorkflowType { name: "Nothing".to_owned() }),
        task_queue: Some(TaskQueue { name: "nobody".to_owned(), ..TaskQueue::default() }),
        request_id: "one".to_owned(),
        ..StartWorkflowExecutionRequest::default()
    };
    let run = WorkflowService::start_workflow_execution(&mut client.clone(), start.into_request())
        .await
        .unwrap()
        .into_inner()
        .run_id;

    server.kill();
    assert!(TcpStream::connect(server.address()).is_err(), "something answers after the kill");
    let address = server.address();
    server.restart().await.unwrap();
    assert_eq!(server.address(), address, "clients would not find it again");

    // The client of before reconnects by itself.
    let describe = DescribeWorkflowExecutionRequest {
        namespace: "default".to_owned(),
        execution: Some(WorkflowExecution { workflow_id: "survivor".to_owned(), run_id: run }),
    };
    let found = client.clone().describe_workflow_execution(describe.into_request()).await.unwrap();
    let info = found.into_inner().workflow_execution_info.unwrap();
    assert_eq!(info.status(), WorkflowExecutionStatus::Running);
}

#[tokio::test]
async fn a_server_in_memory_is_not_restarted() {
    let Some(mut server) = server(None, false).await else { return };
    let error = server.restart().await.unwrap_err();
    assert!(matches!(error, ServerError::InMemory), "{error}");
    server.client("a test").await.unwrap();
}

#[tokio::test]
async fn a_server_that_cannot_start_says_why() {
    let Some(binary) = binary().await else { return };
    let file = Some("/nonexistent/folder/temporal.db".into());
    let options = ServerOptions { binary, file, ui: false, search_attributes: false };
    let error = DevServer::start(options).await.unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, ServerError::Ended { .. }), "{text}");
    assert!(text.contains("/nonexistent/folder: no such file"), "{text}");
}

#[tokio::test]
async fn the_web_ui_is_served_when_wanted() {
    let Some(binary) = binary().await else { return };
    let options = ServerOptions { binary, file: None, ui: true, search_attributes: false };
    let server = DevServer::start(options).await.unwrap();
    let url = server.ui_url().unwrap();
    let page = eventually("the web UI", || async { reqwest::get(&url).await.ok() }).await;
    assert!(page.status().is_success(), "{}", page.status());
    let metrics = reqwest::get(server.metrics_url()).await.unwrap().text().await.unwrap();
    assert!(metrics.contains("service_requests"), "{metrics}");
}

/// The variable that turns the next test into the parent that the test after it kills.
const HOLD: &str = "DIGESTD_TEST_HOLD_A_SERVER";

#[tokio::test]
async fn holds_a_server_when_asked_to() {
    if std::env::var_os(HOLD).is_none() {
        return;
    }
    let server = server(None, false).await.unwrap();
    println!("\nholding {}", server.address());
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn the_server_ends_with_a_parent_that_is_killed() {
    if binary().await.is_none() {
        return;
    }
    let mut parent = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "engine::server::holds_a_server_when_asked_to", "--nocapture"])
        .env(HOLD, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let said = BufReader::new(parent.stdout.take().unwrap());
    let address: SocketAddr = said
        .lines()
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("holding ")?.parse().ok())
        .expect("the parent never told its server's address");
    assert!(TcpStream::connect(address).is_ok(), "the server does not answer");

    parent.kill().unwrap();
    parent.wait().unwrap();
    eventually("the end of the server", || async { TcpStream::connect(address).err() }).await;
}
