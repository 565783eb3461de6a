//! The tests that Debian's pyverbs brings (rdma-core's), of reliable connections.

use std::time::Duration;

use rnic_tests::lab::INTERFACE;
use rnic_tests::programs::Programs;

/// Where the package has them, some compressed.
const TESTS: &str = "/usr/share/doc/rdma-core/tests";

/// Tests of classes, none of which may fail or be left out.
const PASSED: [(&str, &[&str]); 13] = [
    (
        "device.DeviceTest",
        &[
            "dev_list",
            "open_dev",
            "phys_port_cnt_ex",
            "query_device",
            "query_device_ex",
            "query_gid",
            "query_gid_ex",
            "query_gid_table",
            "query_gid_table_bad_flow",
            "query_pkey",
            "query_port",
            "query_port_bad_flow",
        ],
    ),
    (
        "pd.PDTest",
        &[
            "alloc_pd",
            "dealloc_pd",
            "destroy_pd_twice",
            "multiple_pd_creation",
        ],
    ),
    (
        "cq.CQAPITest",
        &[
            "create_cq",
            "create_cq_bad_flow",
            "create_cq_with_comp_channel",
        ],
    ),
    (
        "cqex.CQEXAPITest",
        &["create_cq_ex", "create_cq_ex_bad_flow"],
    ),
    (
        "qp.QPTest",
        &[
            "create_rc_qp_ex_no_attr",
            "create_rc_qp_ex_with_attr",
            "create_rc_qp_no_attr",
            "create_rc_qp_with_attr",
            "query_rc_qp",
        ],
    ),
    (
        "rdmacm.CMTestCase",
        &[
            "rdmacm_async_read",
            "rdmacm_async_reject_traffic",
            "rdmacm_async_write",
            "rdmacm_sync_traffic",
        ],
    ),
    // What follows connects by `ibv_modify_qp`.
    (
        "mr.MRTest",
        &["mr_rereg_access_bad_flow", "reg_mr_bad_flags"],
    ),
    (
        "mr.MWTest",
        &[
            "invalidate_mw_type1",
            "mw_type1",
            "mw_type2",
            "mw_type2_invalidate_dealloc",
            "mw_type2_invalidate_local",
            "mw_type2_invalidate_remote",
            "reg_mw_wrong_type",
        ],
    ),
    (
        "qpex.QpExTestCase",
        &[
            "qp_ex_rc_atomic_cmp_swp",
            "qp_ex_rc_atomic_fetch_add",
            "qp_ex_rc_bind_mw",
            "qp_ex_rc_rdma_read",
            "qp_ex_rc_rdma_read_zero_size",
            "qp_ex_rc_rdma_write",
            "qp_ex_rc_rdma_write_imm",
            "qp_ex_rc_rdma_write_zero_length",
            "qp_ex_rc_send",
            "qp_ex_rc_send_imm",
        ],
    ),
    ("relaxed_ordering.RoTestCase", &["ro_rc_traffic"]),
    ("cq_events.CqEventsTestCase", &["cq_events_rc"]),
    (
        "atomic.AtomicTest",
        &[
            "atomic_cmp_and_swap",
            "atomic_fetch_and_add",
            "atomic_invalid_lkey",
            "atomic_invalid_mr_access",
            "atomic_invalid_qp_access",
            "atomic_invalid_rkey",
            "atomic_non_aligned_addr",
        ],
    ),
    ("cqex.CqExTestCase", &["rc_traffic_cq_ex"]),
];

#[test]
fn rdma_cores_tests_in_python_pass() {
    let programs = Programs::new("pyverbs");
    let directory = programs.pair.lab.directory().join("tests");
    let device = format!("rnic_{INTERFACE}");
    let names: Vec<_> = PASSED
        .iter()
        .flat_map(|(class, tests)| {
            let name = move |test| format!("tests.test_{class}.test_{test}");
            tests.iter().map(name)
        })
        .collect();
    // They ask /sys which interface a device is of. It is this command's own there.
    let script = format!(
        "cp -r {TESTS} {at} && gzip -df {at}/*.gz && mount -t tmpfs none /sys/class && \
         mkdir -p /sys/class/infiniband/{device}/device/net/{INTERFACE} && \
         exec /usr/bin/python3 {at}/run_tests.py --dev {device} -v {names}",
        at = directory.display(),
        names = names.join(" "),
    );
    let run = programs.on_b("sh -c").arg(script);
    let run = run.limit(Duration::from_secs(60)).run().success();
    let ran = format!("Ran {} tests", names.len());
    let said = &run.stderr;
    assert!(said.contains(&ran) && said.contains("\nOK\n"), "{run}");
}
