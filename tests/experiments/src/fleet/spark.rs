//! A cluster of Spark on the loopback: a master, and workers of one core each.

use std::fs::{self, File};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::frame::machine::{Killed, free_port, wait_until};
use crate::frame::{installed, shell};

const MASTER: &str = "org.apache.spark.deploy.master.Master";
const WORKER: &str = "org.apache.spark.deploy.worker.Worker";

/// Longest time for Java to start on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Memory of a worker, and of its executor.
const MEMORY: [&str; 2] = ["3g", "2g"];

/// A cluster; it ends when this is dropped.
pub struct Cluster {
    workers: Vec<Killed>,
    _master: Killed,
    home: PathBuf,
    dir: PathBuf,
    port: u16,
}

impl Cluster {
    /// Starts a master and so many workers; what they write is in this folder.
    pub fn start(dir: &Path, workers: usize) -> Result<Self> {
        let python = installed::spark().context("no pyspark")?;
        let home = "import pyspark, pathlib; print(pathlib.Path(pyspark.__file__).parent)";
        let home = shell::output(Command::new(python).args(["-W", "ignore", "-c", home]))?;
        let home = PathBuf::from(home.trim());
        shell::remove(dir)?;
        fs::create_dir_all(dir)?;
        let port = free_port()?;
        let number = port.to_string();
        let args = [
            "--host",
            "127.0.0.1",
            "--port",
            &number,
            "--webui-port",
            "0",
        ];
        let master = spawn(&home, dir, "master", MASTER, &args)?;
        let answers = || TcpStream::connect(("127.0.0.1", port)).is_ok();
        ensure!(
            wait_until(PATIENCE, answers),
            "Spark's master does not answer: {}",
            dir.display()
        );
        let mut cluster = Self {
            workers: Vec::new(),
            _master: master,
            home,
            dir: dir.to_owned(),
            port,
        };
        for _ in 0..workers {
            cluster.add_worker()?;
        }
        Ok(cluster)
    }

    /// Starts another worker.
    pub fn add_worker(&mut self) -> Result<()> {
        let name = format!("worker{}", self.workers.len() + 1);
        let address = self.address();
        let args = ["--host", "127.0.0.1", "--cores", "1", "--memory", MEMORY[0]];
        let args = [&args[..], &["--webui-port", "0", &address]].concat();
        let worker = spawn(&self.home, &self.dir, &name, WORKER, &args)?;
        self.workers.push(worker);
        let log = self.dir.join(format!("{name}.log"));
        let is_there =
            || fs::read_to_string(&log).is_ok_and(|it| it.contains("Successfully registered"));
        ensure!(
            wait_until(PATIENCE, is_there),
            "a worker does not start: {}",
            log.display()
        );
        Ok(())
    }

    pub fn address(&self) -> String {
        format!("spark://127.0.0.1:{}", self.port)
    }

    /// Makes a program that starts a session use it.
    pub fn used_by(&self, command: &mut Command) {
        let options = [
            format!("spark.executor.memory={}", MEMORY[1]),
            "spark.driver.memory=2g".to_owned(),
            "spark.driver.host=127.0.0.1".to_owned(),
            "spark.driver.bindAddress=127.0.0.1".to_owned(),
            // Two hundred by default, for terabytes.
            "spark.sql.shuffle.partitions=8".to_owned(),
            "spark.ui.showConsoleProgress=false".to_owned(),
            format!("spark.local.dir={}", self.dir.display()),
        ];
        let options = options.map(|it| format!("--conf {it} ")).concat();
        command.env("PYSPARK_SUBMIT_ARGS", options + "pyspark-shell");
        command.env("SPARK_LOCAL_IP", "127.0.0.1");
    }
}

/// Starts a class of Spark.
fn spawn(home: &Path, dir: &Path, name: &str, class: &str, args: &[&str]) -> Result<Killed> {
    let log = File::create(dir.join(format!("{name}.log")))?;
    let mut command = Command::new(home.join("bin/spark-class"));
    command.arg(class).args(args);
    command
        .env("SPARK_HOME", home)
        .env("SPARK_LOCAL_IP", "127.0.0.1");
    command
        .env("SPARK_WORKER_DIR", dir)
        .env("SPARK_LOCAL_DIRS", dir);
    command
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    let child = shell::show(&mut command).spawn();
    Ok(Killed(child.context("cannot start Spark")?))
}
