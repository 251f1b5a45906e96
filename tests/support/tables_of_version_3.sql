-- The tables of version 3, as a new file was given them.
CREATE TABLE schema_version ( version INTEGER NOT NULL );
CREATE TABLE ledger_entries ( "key" VARCHAR NOT NULL, messages TEXT NOT NULL, window INTEGER NOT NULL, "before"
    INTEGER NOT NULL, "after" INTEGER NOT NULL, rung VARCHAR NOT NULL, created FLOAT NOT NULL, last_used FLOAT NOT
    NULL, PRIMARY KEY ("key") );
CREATE INDEX ledger_entries_by_last_use ON ledger_entries (last_used);
CREATE TABLE archived_messages ( "key" VARCHAR NOT NULL, parent VARCHAR NOT NULL, message TEXT NOT NULL, saved FLOAT
    NOT NULL, PRIMARY KEY ("key") );
CREATE TABLE tool_outputs ( owner VARCHAR NOT NULL, id VARCHAR NOT NULL, tool TEXT NOT NULL, mime_type TEXT NOT NULL,
    bytes BIGINT NOT NULL, lines BIGINT NOT NULL, size BIGINT NOT NULL, saved FLOAT NOT NULL, last_used FLOAT NOT
    NULL, last_named FLOAT NOT NULL, PRIMARY KEY (owner, id) );
CREATE INDEX tool_outputs_by_last_use ON tool_outputs (last_used);
CREATE TABLE tool_output_chunks ( owner VARCHAR NOT NULL, id VARCHAR NOT NULL, line BIGINT NOT NULL, "column" BIGINT
    NOT NULL, content BLOB NOT NULL, PRIMARY KEY (owner, id, line, "column") );
CREATE TABLE tool_output_uses ( place VARCHAR NOT NULL, "key" VARCHAR NOT NULL, id VARCHAR NOT NULL, PRIMARY KEY
    (place, "key", id) );
CREATE INDEX tool_output_uses_by_id ON tool_output_uses (id);
CREATE TABLE memories ( room VARCHAR NOT NULL, id VARCHAR NOT NULL, text TEXT NOT NULL, saved FLOAT NOT NULL, PRIMARY
    KEY (room, id) );
CREATE INDEX memories_by_age ON memories (room, saved);
CREATE TABLE conversations ( id VARCHAR NOT NULL, owner VARCHAR NOT NULL, name TEXT NOT NULL, agent TEXT NOT NULL,
    title TEXT NOT NULL, created FLOAT NOT NULL, updated FLOAT NOT NULL, input_tokens BIGINT NOT NULL, output_tokens
    BIGINT NOT NULL, cache_creation_tokens BIGINT NOT NULL, cache_read_tokens BIGINT NOT NULL, total_tokens BIGINT NOT
    NULL, is_counted BOOLEAN NOT NULL, steps INTEGER NOT NULL, compactions INTEGER NOT NULL, fill_tokens INTEGER,
    fill_window INTEGER, fill_trigger INTEGER, fill_stop_at INTEGER, PRIMARY KEY (id) );
CREATE INDEX conversations_by_update ON conversations (updated);
CREATE INDEX conversations_by_owner ON conversations (owner, updated);
CREATE TABLE turns ( id VARCHAR NOT NULL, conversation VARCHAR NOT NULL, parent VARCHAR NOT NULL, "key" VARCHAR NOT
    NULL, agent TEXT NOT NULL, status VARCHAR NOT NULL, began FLOAT NOT NULL, ended FLOAT, has_more BOOLEAN NOT NULL,
    PRIMARY KEY (id) );
CREATE INDEX turns_by_conversation ON turns (conversation);
CREATE INDEX turns_by_key ON turns ("key");
CREATE INDEX turns_by_status ON turns (status);
CREATE INDEX turns_by_parent ON turns (parent);
CREATE TABLE messages ( number INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, id VARCHAR NOT NULL, conversation VARCHAR
    NOT NULL, turn VARCHAR NOT NULL, "key" VARCHAR, parent VARCHAR NOT NULL, fields TEXT NOT NULL, status VARCHAR NOT
    NULL, at FLOAT NOT NULL, CONSTRAINT messages_id UNIQUE (id), CONSTRAINT messages_key UNIQUE (conversation, "key")
    );
CREATE INDEX messages_by_key ON messages ("key");
CREATE INDEX messages_by_conversation ON messages (conversation, number);
CREATE INDEX messages_by_turn ON messages (turn);
CREATE TABLE message_parts ( message VARCHAR NOT NULL, position INTEGER NOT NULL, kind VARCHAR NOT NULL, status
    VARCHAR NOT NULL, content TEXT NOT NULL, PRIMARY KEY (message, position) );
CREATE TABLE step_usage ( number INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, turn VARCHAR NOT NULL, model TEXT NOT
    NULL, input_tokens BIGINT NOT NULL, output_tokens BIGINT NOT NULL, cache_creation_tokens BIGINT NOT NULL,
    cache_read_tokens BIGINT NOT NULL, is_counted BOOLEAN NOT NULL, at FLOAT NOT NULL );
CREATE INDEX step_usage_by_turn ON step_usage (turn);
CREATE TABLE compactions ( number INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, conversation VARCHAR NOT NULL, "before"
    INTEGER NOT NULL, "after" INTEGER NOT NULL, rung VARCHAR NOT NULL, at FLOAT NOT NULL );
CREATE INDEX compactions_by_conversation ON compactions (conversation);
CREATE TABLE queue ( number INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, id VARCHAR NOT NULL, conversation VARCHAR NOT
    NULL, message TEXT NOT NULL, mode VARCHAR NOT NULL, at FLOAT NOT NULL, turn VARCHAR NOT NULL, CONSTRAINT queue_id
    UNIQUE (id) );
CREATE INDEX queue_by_conversation ON queue (conversation);
CREATE TABLE alembic_version ( version_num VARCHAR(32) NOT NULL, PRIMARY KEY (version_num) );
INSERT INTO schema_version VALUES (3);
INSERT INTO alembic_version VALUES ('3');
