"""What a result depends on beside its scenario: the user's own code, the data, rayfl and its libraries."""
