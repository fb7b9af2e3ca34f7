-- The lines of changes after which checks are decided differently, by time: charts mark them.
CREATE INDEX audit_log_events ON audit_log (at, id)
    WHERE action IN ('block.create', 'block.delete', 'block.expire', 'counter.reset',
        'list_entry.create', 'list_entry.delete', 'list_entry.expire', 'override.create', 'override.delete',
        'override.expire', 'override.update', 'plan.publish');
CREATE INDEX audit_log_events_of_tenant ON audit_log (tenant_id, at, id)
    WHERE action IN ('block.create', 'block.delete', 'block.expire', 'counter.reset',
        'list_entry.create', 'list_entry.delete', 'list_entry.expire', 'override.create', 'override.delete',
        'override.expire', 'override.update', 'plan.publish');
