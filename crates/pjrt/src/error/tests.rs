use super::{Code, DeviceMemory, Error, Fault};

fn compiler(message: &str) -> Error {
    let message = message.to_owned();
    Error::Status { call: "PJRT_Compile", code: Code::ResourceExhausted, message }.of_compiler()
}

#[test]
fn a_program_too_large_for_a_memory_is_the_callers_fault_and_never_retried() {
    let said = [
        (
            "E1000: CompileTimeHbmOom: program (33.00G) exceeds available HBM (31.24G)",
            "hbm",
            "33.00G",
            "31.24G",
        ),
        ("Ran out of memory in memory space vmem. Used 128.00M of 63.94M vmem.", "vmem", "128.00M", "63.94M"),
    ];
    for (message, space, used, available) in said {
        let error = compiler(message);
        let wanted = DeviceMemory { space: space.into(), used: used.into(), available: available.into() };
        assert!(matches!(&error, Error::TooLarge { memory, .. } if **memory == wanted), "{error:?}");
        assert_eq!((error.whose(), error.retry()), (Fault::Caller, false));
    }
    let other = compiler("too many open files");
    assert!(matches!(other, Error::Status { .. }) && other.retry(), "{other:?}");
}
