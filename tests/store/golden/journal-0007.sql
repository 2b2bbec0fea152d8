BEGIN TRANSACTION;
CREATE TABLE cloudgraft_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT cloudgraft_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "cloudgraft_version" VALUES('0007');
CREATE TABLE clouds (
	name TEXT NOT NULL, 
	adopted_at DOUBLE NOT NULL, 
	checksum BIGINT, 
	PRIMARY KEY (name)
);
INSERT INTO "clouds" VALUES('sim',1799999940.0,-418824154539566265);
CREATE TABLE declared_groups (
	id TEXT NOT NULL, 
	document TEXT NOT NULL, 
	revision BIGINT NOT NULL, 
	checksum BIGINT, 
	PRIMARY KEY (id)
);
INSERT INTO "declared_groups" VALUES('declared','{"id":"declared","cloud":"sim","maxSize":3,"machine":{"shape":"small"}}',2,-2201522973896633302);
CREATE TABLE events (
	seq INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	at DOUBLE NOT NULL, 
	kind TEXT NOT NULL, 
	message TEXT NOT NULL, 
	cloud TEXT NOT NULL, 
	group_id TEXT NOT NULL, 
	machine TEXT NOT NULL, 
	state TEXT, 
	data TEXT NOT NULL, 
	checksum BIGINT
);
INSERT INTO "events" VALUES(1,1800000000.0,'leader','began','','','',NULL,'{}',-3488280605011017159);
INSERT INTO "events" VALUES(2,1800000006.0,'failed','größer','sim','lab','test-abcdefghij-lab-00000006-aaaaaaaa','failed','{"code":"out_of_stock","nested":{"a":[1,2.5,null,true]}}',-6348201049295972985);
INSERT INTO "events" VALUES(3,1800000030.0,'paused','roof','','lab','',NULL,'{"scope":"group"}',-1723082867888596335);
CREATE TABLE fence (
	id INTEGER NOT NULL, 
	epoch BIGINT NOT NULL, 
	holder TEXT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "fence" VALUES(1,1,'process 1 on host since 2026-11-18T09:26:35Z (c964e4be)');
CREATE TABLE journal (
	id INTEGER NOT NULL, 
	cluster_id TEXT NOT NULL, 
	created_at DOUBLE NOT NULL, 
	cluster TEXT, 
	checksum BIGINT, 
	PRIMARY KEY (id)
);
INSERT INTO "journal" VALUES(1,'abcdefghij',1.79499399597610139844e+09,'test',-690808355551435422);
CREATE TABLE learned (
	group_id TEXT NOT NULL, 
	settings TEXT NOT NULL, 
	since DOUBLE NOT NULL, 
	facts TEXT NOT NULL, 
	checksum BIGINT, 
	PRIMARY KEY (group_id)
);
INSERT INTO "learned" VALUES('lab','{"shape":"small","disks":[1,2.5,null,true,"x",{"size":100000000000000000000}],"nested":{"a":{"b":[]}}}',1800000000.0,'{"labels":{"kubernetes.io/arch":"amd64","leer":""},"taints":[{"key":"gpu","value":"yes","effect":"NoExecute"},{"key":"dedicated","value":"","effect":"NoSchedule"}],"capacity":{"cpu":"2","memory":"3977Mi"},"allocatable":{"cpu":"1930m","memory":"3500000Ki"},"varying":{"a":"","b":""},"settled":true}',8291038034700458012);
INSERT INTO "learned" VALUES('old','{}',1800000000.0,'{}',-6883430108579970629);
CREATE TABLE lease (
	id INTEGER NOT NULL, 
	holder TEXT NOT NULL, 
	epoch BIGINT NOT NULL, 
	renewals BIGINT NOT NULL, 
	seconds DOUBLE NOT NULL, 
	server TEXT NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE machines (
	name TEXT NOT NULL, 
	group_id TEXT NOT NULL, 
	cloud TEXT NOT NULL, 
	placeholder TEXT NOT NULL, 
	state TEXT NOT NULL, 
	presence TEXT NOT NULL, 
	settings TEXT NOT NULL, 
	tags TEXT NOT NULL, 
	requested_at DOUBLE NOT NULL, 
	state_since DOUBLE NOT NULL, 
	ordered_at DOUBLE, 
	attempt_at DOUBLE, 
	attempts BIGINT NOT NULL, 
	gone_at DOUBLE, 
	machine_id TEXT NOT NULL, 
	provider_id TEXT NOT NULL, 
	error_code TEXT, 
	error_message TEXT, 
	error_class INTEGER, 
	hourly TEXT, 
	currency TEXT NOT NULL, 
	is_adopted BOOLEAN NOT NULL, 
	replaces TEXT NOT NULL, 
	version BIGINT NOT NULL, 
	is_marked BOOLEAN DEFAULT 0 NOT NULL, 
	created_at DOUBLE, 
	checksum BIGINT, 
	PRIMARY KEY (name)
);
INSERT INTO "machines" VALUES('test-abcdefghij-lab-00000001-aaaaaaaa','lab','sim','cloudgraft://sim/test-abcdefghij-lab-00000001-aaaaaaaa','requested','none','{"shape":"small","disks":[1,2.5,null,true,"x",{"size":100000000000000000000}],"nested":{"a":{"b":[]}}}','{"cloudgraft-cluster":"test","cloudgraft-cluster-id":"abcdefghij","cloudgraft-group":"lab","cloudgraft-name":"test-abcdefghij-lab-00000001-aaaaaaaa"}',1.80000000112345600123e+09,1800000003.5,NULL,NULL,0,NULL,'','',NULL,NULL,NULL,'0.0500','EUR',0,'',1,0,NULL,-806297804031493257);
INSERT INTO "machines" VALUES('test-abcdefghij-lab-00000002-aaaaaaaa','lab','sim','cloudgraft://sim/test-abcdefghij-lab-00000002-aaaaaaaa','creating','unknown','{"shape":"small","disks":[1,2.5,null,true,"x",{"size":100000000000000000000}],"nested":{"a":{"b":[]}}}','{"cloudgraft-cluster":"test","cloudgraft-cluster-id":"abcdefghij","cloudgraft-group":"lab","cloudgraft-name":"test-abcdefghij-lab-00000002-aaaaaaaa"}',1.80000000212345600131e+09,1800000004.5,1800000002.25,1800000003.0,3,NULL,'','',NULL,NULL,NULL,'0.0500','EUR',0,'',1,0,NULL,7084032835516257568);
INSERT INTO "machines" VALUES('test-abcdefghij-lab-00000003-aaaaaaaa','lab','sim','cloudgraft://sim/test-abcdefghij-lab-00000003-aaaaaaaa','booting','present','{"shape":"small","disks":[1,2.5,null,true,"x",{"size":100000000000000000000}],"nested":{"a":{"b":[]}}}','{"cloudgraft-cluster":"test","cloudgraft-cluster-id":"abcdefghij","cloudgraft-group":"lab","cloudgraft-name":"test-abcdefghij-lab-00000003-aaaaaaaa"}',1.8000000031234560013e+09,1800000005.5,1800000003.25,1800000004.0,1,NULL,'m-3','sim://m-3',NULL,NULL,NULL,'0.0500','EUR',0,'',1,0,NULL,-4700087943653241761);
INSERT INTO "machines" VALUES('test-abcdefghij-lab-00000004-aaaaaaaa','lab','sim','cloudgraft://sim/test-abcdefghij-lab-00000004-aaaaaaaa','running','present','{"shape":"small","disks":[1,2.5,null,true,"x",{"size":100000000000000000000}],"nested":{"a":{"b":[]}}}','{"cloudgraft-cluster":"test","cloudgraft-cluster-id":"abcdefghij","cloudgraft-group":"lab","cloudgraft-name":"test-abcdefghij-lab-00000004-aaaaaaaa"}',1.8000000041234560013e+09,1800000006.5,1800000004.25,1800000005.0,1,NULL,'m-4','sim://m-4',NULL,NULL,NULL,'0.0500','EUR',0,'test-abcdefghij-lab-00000000-aaaaaaaa',1,0,NULL,-177962141767012380);
INSERT INTO "machines" VALUES('test-abcdefghij-lab-00000005-aaaaaaaa','lab','sim','cloudgraft://sim/test-abcdefghij-lab-00000005-aaaaaaaa','running','present','{"shape":"small","disks":[1,2.5,null,true,"x",{"size":100000000000000000000}],"nested":{"a":{"b":[]}}}','{"cloudgraft-cluster":"test","cloudgraft-cluster-id":"abcdefghij","cloudgraft-group":"lab","cloudgraft-name":"test-abcdefghij-lab-00000005-aaaaaaaa"}',1.80000000512345600129e+09,1800000007.5,1800000005.25,1800000006.0,1,NULL,'m-5','sim://m-5',NULL,NULL,NULL,'0.0500','EUR',1,'',1,1,1799998999.5,1484104278501977176);
INSERT INTO "machines" VALUES('test-abcdefghij-lab-00000006-aaaaaaaa','lab','sim','cloudgraft://sim/test-abcdefghij-lab-00000006-aaaaaaaa','failed','none','{"shape":"small","disks":[1,2.5,null,true,"x",{"size":100000000000000000000}],"nested":{"a":{"b":[]}}}','{"cloudgraft-cluster":"test","cloudgraft-cluster-id":"abcdefghij","cloudgraft-group":"lab","cloudgraft-name":"test-abcdefghij-lab-00000006-aaaaaaaa"}',1.80000000612345600128e+09,1800000008.5,1800000006.25,1800000007.0,1,NULL,'','','out_of_stock','größer: no more of m5',1,NULL,'',0,'',1,0,NULL,8473423297979961793);
INSERT INTO "machines" VALUES('test-abcdefghij-lab-00000007-aaaaaaaa','old','sim','cloudgraft://sim/test-abcdefghij-lab-00000007-aaaaaaaa','deleting','present','{}','{}',1.80000000712345600128e+09,1800000009.5,1800000007.25,1800000008.0,1,NULL,'m-7','sim://m-7',NULL,NULL,NULL,'0.0500','EUR',0,'',1,0,NULL,4915686703446028771);
INSERT INTO "machines" VALUES('test-abcdefghij-lab-00000008-aaaaaaaa','lab','sim','cloudgraft://sim/test-abcdefghij-lab-00000008-aaaaaaaa','gone','none','{"shape":"small","disks":[1,2.5,null,true,"x",{"size":100000000000000000000}],"nested":{"a":{"b":[]}}}','{"cloudgraft-cluster":"test","cloudgraft-cluster-id":"abcdefghij","cloudgraft-group":"lab","cloudgraft-name":"test-abcdefghij-lab-00000008-aaaaaaaa"}',1.80000000812345600127e+09,1800000010.5,1800000008.25,1800000009.0,1,1800000020.0,'m-8','sim://m-8',NULL,NULL,NULL,'0.0500','EUR',0,'',1,0,NULL,1879809837819254464);
CREATE TABLE node_groups (
	id TEXT NOT NULL, 
	cloud TEXT NOT NULL, 
	spec TEXT NOT NULL, 
	configured BOOLEAN NOT NULL, 
	checksum BIGINT, 
	PRIMARY KEY (id)
);
INSERT INTO "node_groups" VALUES('lab','sim','{"id":"lab","cloud":"sim","min_size":1,"max_size":10,"machine":{"shape":"small","disks":[1,2.5,null,true,"x",{"size":100000000000000000000}],"nested":{"a":{"b":[]}}},"template":{"labels":{"pool":"lab","topology.kubernetes.io/zone":"gr\u00f6\u00dfer-1"},"annotations":{"note":"with \"quotes\", a tab\t and a line\nmore"},"taints":[{"key":"gpu","value":"yes","effect":"NoExecute"},{"key":"dedicated","value":"","effect":"NoSchedule"}],"capacity":{"cpu":"4","memory":"1.5Gi","pods":"1e2","nvidia.com/gpu":"2"},"allocatable":{"cpu":"3900m","memory":"1073741824","pods":"0100"},"conditions":[{"type":"Ready","status":"True","reason":"KubeletReady","message":"is posting ready status"},{"type":"DiskPressure","status":"False","reason":"","message":""}],"unschedulable":true,"name":"template-node","provider_id":"sim://template"},"labels":{"pool":"lab"},"taints":[{"key":"gpu","value":"yes","effect":"NoExecute"},{"key":"dedicated","value":"","effect":"NoSchedule"}],"options":{"scale_down_utilization_threshold":0.5,"scale_down_gpu_utilization_threshold":1.0,"scale_down_unneeded_time":"10m0s","scale_down_unready_time":"1h0m0.001s","max_node_provision_time":"0s","zero_or_max_node_scaling":false,"ignore_daemon_sets_utilization":true,"max_node_startup_time":"48h0m0.000001s","allow_non_atomic_scale_up_to_max":true},"price":{"amount":"0.0500","currency":"EUR"}}',1,4551553918387363885);
INSERT INTO "node_groups" VALUES('old','sim','{"id":"old","cloud":"sim","min_size":0,"max_size":5,"machine":{"shape":"large"},"template":{"labels":{"pool":"old"},"annotations":{},"taints":[],"capacity":{"cpu":"8"},"allocatable":{},"conditions":[],"unschedulable":false,"name":"","provider_id":""},"options":null,"price":null}',0,8523405341462676802);
CREATE TABLE pauses (
	scope TEXT NOT NULL, 
	name TEXT NOT NULL, 
	since DOUBLE NOT NULL, 
	reason TEXT NOT NULL, 
	checksum BIGINT, 
	PRIMARY KEY (scope, name)
);
INSERT INTO "pauses" VALUES('group','lab',1800000030.0,'roof',-4376158256244060179);
INSERT INTO "pauses" VALUES('cloud','sim',1800000031.5,'',5048392939521432395);
CREATE TABLE progress (
	id INTEGER NOT NULL, 
	at DOUBLE NOT NULL, 
	boot_id TEXT NOT NULL, 
	boot_time DOUBLE NOT NULL, 
	checksum BIGINT, 
	PRIMARY KEY (id)
);
INSERT INTO "progress" VALUES(1,1800000040.0,'0000-boot',12345.5,1976138066509810526);
CREATE TABLE requests (
	caller TEXT NOT NULL, 
	"key" TEXT NOT NULL, 
	fingerprint TEXT NOT NULL, 
	answer TEXT NOT NULL, 
	at DOUBLE NOT NULL, 
	checksum BIGINT, 
	PRIMARY KEY (caller, "key")
);
INSERT INTO "requests" VALUES('ca','0a1b','f00d','{"revision":"m.7","picture":null}',1800000005.0,673660503816626216);
CREATE INDEX ix_machines_gone_at ON machines (gone_at);
CREATE INDEX ix_requests_at ON requests (at);
CREATE INDEX ix_events_group_id_seq ON events (group_id, seq);
CREATE INDEX ix_events_at ON events (at);
CREATE INDEX ix_events_machine_seq ON events (machine, seq);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('events',3);
COMMIT;
