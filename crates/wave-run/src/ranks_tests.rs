use super::*;

fn find(variables: &[(&str, &str)]) -> Result<Option<usize>> {
    let find = |name: &str| variables.iter().find(|(key, _)| *key == name);
    started(|name| find(name).map(|(_, value)| value.to_string()))
}

fn check(variables: &[(&str, &str)], expected: Option<usize>) {
    assert_eq!(find(variables).unwrap(), expected, "{variables:?}");
}

fn check_refused(variables: &[(&str, &str)], expected: &str) {
    let error = find(variables).unwrap_err().to_string();
    assert!(error.contains(expected), "{variables:?}: {error}");
}

#[test]
fn launchers_are_known_by_their_variables() {
    check(&[], None);
    let mpirun = [("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "4")];
    check(&mpirun, Some(4));
    check(&[("PMI_RANK", "0"), ("PMI_SIZE", "2")], Some(2));
    let srun = [("PMIX_RANK", "0"), ("SLURM_STEP_NUM_TASKS", "8")];
    check(&srun, Some(8));
    check(&[("OMPI_COMM_WORLD_SIZE", "2")], Some(2));
    check(&[("PMI_SIZE", "3")], Some(3));
    check(&[("OMPI_COMM_WORLD_SIZE", "1")], None);
    check(&[("PMI_SIZE", "many")], None);
    // Tasks that cannot communicate, in a step by itself and within a job.
    let step = [("SLURM_PROCID", "3"), ("SLURM_NTASKS", "8")];
    check_refused(&step, "Slurm started 8 tasks");
    let job = [("SLURM_JOB_ID", "1"), ("SLURM_STEP_NUM_TASKS", "2")];
    check_refused(&[&step[..], &job].concat(), "Slurm started 8 tasks");
    let first = ("SLURM_PROCID", "0");
    check(&[first, ("SLURM_STEP_NUM_TASKS", "1")], None);
    // A batch script of Slurm is not a step, nor is the shell of an allocation.
    check(&[job[0], first, step[1]], None);
    check(&[("SLURM_NTASKS", "8")], None);
    let torchrun = |size| [("RANK", "5"), ("LOCAL_RANK", "1"), ("WORLD_SIZE", size)];
    check_refused(&torchrun("8"), "torchrun started 8 processes");
    check(&torchrun("1"), None);
    check(&[("WORLD_SIZE", "8")], None);
}
